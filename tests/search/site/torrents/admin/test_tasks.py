"""The page of rules about names. tests/app/test_torrent_admin.py tests the tasks."""

from __future__ import annotations

import pytest

from lycosa.app.torrent_admin import StoredNameRules
from tests.search.site.torrents.admin.clients import session_of


async def no_update() -> None:
    pass


@pytest.mark.parametrize(
    ("words", "english", "chinese"),
    [
        ("!!!", "&#39;!!!&#39; does not have 1 to", "段字母和数字组成。"),
        ("英雄 传", "remove the spaces, or use a pattern.", "请去掉空格，或使用模式。"),
        ("", "A rule needs a reason and at least one word.", "规则须有理由和至少一个词。"),
    ],
)
def test_an_invalid_rule_is_explained_in_the_language_of_the_administrator(run_site, hashed, words, english, chinese):
    run_site.kept.set_password("ada", hashed)
    with run_site(rules=lambda store: StoredNameRules(store, None, no_update)) as site:
        session = session_of(site.server)
        for cookie, text in (("", english), ("; lycosa_language=zh", chinese)):
            asked = session._replace(cookie=session.cookie + cookie)
            answer = asked.post("/admin/rules", action="try", name="mine", reason="law", words=words)
            assert (answer.status, text in answer.text) == (400, True), answer.text
