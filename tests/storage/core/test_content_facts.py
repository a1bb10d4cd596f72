from __future__ import annotations

from lycosa.storage.core.content_facts import LANGUAGES, ContentFacts, ContentType, facts_of


def test_the_numbers_of_facts_give_the_same_facts():
    for facts in (
        ContentFacts(),
        ContentFacts(ContentType.VIDEO, 5045, 2160, 2024, 0, 12, ("en", "zh")),
        ContentFacts(ContentType.ADULT, 6000, season=7, languages=LANGUAGES),
    ):
        assert facts_of(facts.to_numbers()) == facts
