"""Settings of a project and of the user, and how the user's code sees the settings (C8, bad input)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lycosa.config import Settings, load
from lycosa.config.project import find_project, read_proxies
from lycosa.config.view import SettingsView
from lycosa.core.errors import BadSetting


def settings(folder: Path, **more) -> Settings:
    return load(more.pop("flags", {}), environ=more.pop("environ", {}), folder=folder, **more)


def complaint(folder: Path, **more) -> str:
    with pytest.raises(BadSetting) as caught:
        settings(folder, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Own:
    """A class of the user."""


@pytest.mark.parametrize(("file", "text"), [("lycosa.toml", ""), ("pyproject.toml", "[tool.lycosa]\n")])
def test_project_is_found_from_a_subfolder(tmp_path, file, text):
    below = tmp_path / "shop" / "spiders"
    below.mkdir(parents=True)
    (tmp_path / "shop" / "pyproject.toml").write_text("[tool.other]\n")
    assert find_project(below) is None
    (tmp_path / file).write_text(text)
    assert find_project(below) == find_project(tmp_path) == tmp_path


def test_only_the_nearest_project_is_used(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "lycosa.toml").write_text("delay = 1\ndepth = 1")
    (inner / "lycosa.toml").write_text("delay = 2")
    assert (settings(inner).delay, settings(inner).depth) == (2, None)


def test_relative_paths_in_files_and_spiders_start_at_the_project(tmp_path):
    below = tmp_path / "deep" / "er"
    below.mkdir(parents=True)
    (tmp_path / "lycosa.toml").write_text("index = 'ix'\noutput = '-'\nlog_file = '/var/log/x'\nfiles_store = 'f'")
    actual = settings(below, spider_settings={"JOBDIR": "s"}, sets=["images_store=i"], flags={"files_store": "here"})
    assert (actual.index, actual.output, actual.log_file) == (f"{tmp_path}/ix", ("-",), "/var/log/x")
    assert (actual.state, actual.images_store, actual.files_store) == (f"{tmp_path}/s", "i", "here")
    assert actual.home == f"{tmp_path}/.lycosa"
    assert (settings(tmp_path).home, settings(tmp_path).index) == (".lycosa", "ix")


def test_url_of_a_stream_is_not_a_path(tmp_path):
    (tmp_path / "lycosa.toml").write_text('output = "redis://host/0?stream=items"')
    (tmp_path / "below").mkdir()
    assert settings(tmp_path / "below").output == ("redis://host/0?stream=items",)


def test_home_may_be_another_folder_but_not_empty(tmp_path):
    assert settings(tmp_path, sets=["home=/var/crawls"]).home == "/var/crawls"
    assert "-s home: '' is not a folder" in complaint(tmp_path, sets=["home="])


def test_toml_file_that_is_nested_too_deeply_is_refused(tmp_path):
    (tmp_path / "lycosa.toml").write_text("a = " + "[" * 100_000)
    assert complaint(tmp_path) == "lycosa.toml is nested too deeply"


def test_crawl_ignores_the_table_proxies(tmp_path):
    below = tmp_path / "below"
    below.mkdir()
    assert read_proxies(below) == ("", {})
    (tmp_path / "pyproject.toml").write_text("[tool.lycosa]\ndelay = 1\n[tool.lycosa.proxies.default]\nmembers = 5\n")
    assert read_proxies(below) == ("pyproject.toml [tool.lycosa]", {"default": {"members": 5}})
    (tmp_path / "lycosa.toml").write_text("depth = 2\n[proxies.default]\nmembers = 7\n")
    assert read_proxies(below) == ("lycosa.toml", {"default": {"members": 7}})
    assert (settings(below).delay, settings(below).depth) == (1, 2)
    (tmp_path / "lycosa.toml").write_text("proxies = 1")
    with pytest.raises(BadSetting, match=r"^lycosa\.toml: 'proxies' must be a table: write \[proxies\]$"):
        read_proxies(below)


def test_the_place_where_each_setting_was_set_is_recorded(tmp_path):
    (tmp_path / "lycosa.toml").write_text("delay = 1\ndepth = 2\n[crawl]\ntimeout = 3")
    places: dict[str, str] = {}
    load(
        {"scope": "any"}, sets=["depth=3"], spider_settings={"RETRY_TIMES": 1, "user": {"a": 1}},
        environ={"LYCOSA_SYNC": "1"}, folder=tmp_path, places=places,
    )  # fmt: skip
    assert places == {
        "delay": "lycosa.toml", "timeout": "lycosa.toml [crawl]", "sync": "LYCOSA_SYNC", "retries": "custom_settings",
        "user": "custom_settings", "depth": "-s depth", "scope": "--scope",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("pipelines=a.b:C,d:E", "pipelines", {"a.b:C": 100, "d:E": 200}),
        ("pipelines=a.b.C=50, d.E", "pipelines", {"a.b:C": 50, "d:E": 200}),
        ('pipelines={"a:B": 1, "c:D": null}', "pipelines", {"a:B": 1, "c:D": None}),
        ("pipelines=", "pipelines", {}),
        ("downloader_middlewares=retry=none,cookies=10", "downloader_middlewares", {"retry": None, "cookies": 10}),
        ("retry_statuses=500, 503", "retry_statuses", (500, 503)),
        ("retry_statuses=", "retry_statuses", ()),
        ("allow_private=true", "allow_private", ("*",)),
        ("allow_private=no", "allow_private", ()),
        ("allow_private=10.1.2.3/8, Intranet.Example.", "allow_private", ("10.0.0.0/8", "intranet.example")),
        ("allow_private=::1", "allow_private", ("::1/128",)),
        ("max_memory=512MiB", "max_memory", 512 * 1024**2),
        ("max_memory=none", "max_memory", None),
        ("close_after=2h", "close_after", 7200.0),
        ("close_after_items=none", "close_after_items", None),
        ("http_cache=RFC9111", "http_cache", "rfc9111"),
        ('images_thumbs={"big": [200, 100]}', "images_thumbs", {"big": (200, 100)}),
        ("spider_modules=shop.spiders,more", "spider_modules", ("shop.spiders", "more")),
        ("new_spider_module=", "new_spider_module", ""),
        ("user.token=abc", "user", {"token": "abc"}),
        ("user.a.b=1", "user", {"a.b": "1"}),
    ],
)
def test_text_is_converted(tmp_path, text, name, value):
    assert getattr(settings(tmp_path, sets=[text]), name) == value


def test_classes_are_kept_and_a_list_of_parts_is_numbered(tmp_path):
    actual = settings(tmp_path, spider_settings={"pipelines": [Own, "a.B"], "extensions": {Own: None}})
    assert actual.pipelines == {Own: 100, "a:B": 200}
    assert actual.extensions == {Own: None}


def test_a_later_layer_replaces_the_parts_of_an_earlier_one(tmp_path):
    (tmp_path / "lycosa.toml").write_text("[pipelines]\n'a:B' = 1")
    assert settings(tmp_path, sets=["pipelines=c:D"]).pipelines == {"c:D": 100}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipelines=a b", "-s pipelines: 'a b' is not a list of classes"),
        ("pipelines=a:B=high", "-s pipelines: {'a:B': 'high'} is not"),
        ("pipelines=:B", "-s pipelines: ':B' is not"),
        ("pipelines={", "-s pipelines: '{' is not"),
        ("pipelines={" + '"a":' * 10_000, "-s pipelines: "),
        ("retry_statuses=500,5", "-s retry_statuses: '5' is not a whole number from 100 to 999, or several"),
        ("allow_private=10.0.0.0/33", "-s allow_private: '10.0.0.0/33' is not true, or a list of hosts"),
        ("allow_private=999.1.1.1", "-s allow_private: '999.1.1.1' is not"),
        ("spider_modules=shop/spiders", "-s spider_modules: 'shop/spiders' is not a module such as shop.spiders"),
        ("callback_mode=process", "-s callback_mode: 'process' is not one of loop, thread"),
        ("max_memory=1", "-s max_memory: '1' is not a size from 1,048,576"),
        ("auto_throttle_target=0", "-s auto_throttle_target: '0' is not a number from 0.01 to 10,000"),
        ("user=x", "-s user: 'x' is not a table"),
    ],
)
def test_mistakes_in_composite_values_are_one_line(tmp_path, text, message):
    assert message in complaint(tmp_path, sets=[text])


def test_user_settings_of_several_layers_are_merged_by_name(tmp_path):
    (tmp_path / "lycosa.toml").write_text("[user]\ntoken = 'x'\nlimits = { a = [1, 2.5] }")
    actual = settings(tmp_path, spider_settings={"user": {"token": "y", "deep": Own}}, sets=["user.more=1"])
    assert actual.user == {"token": "y", "limits": {"a": [1, 2.5]}, "deep": Own, "more": "1"}


def test_user_table_in_the_environment_does_not_clash_with_user_agent(tmp_path):
    actual = settings(tmp_path, environ={"LYCOSA_USER": '{"a": 1}', "LYCOSA_USER_AGENT": "me"})
    assert (actual.user, actual.user_agent) == ({"a": 1}, "me")


@pytest.fixture
def view() -> SettingsView:
    return SettingsView(
        load(
            {"delay": 1.5, "depth": 2, "header": ("A: b",), "insecure": True, "max_memory": "3MiB"},
            spider_settings={"user": {"SHOP": "a, b", "on": "yes", "n": "7", "json": '{"x": 1}', "none": None}},
            environ={},
            folder=Path(os.devnull),
        )
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delay", 1.5),
        ("DOWNLOAD_DELAY", 1.5),
        ("DEPTH_LIMIT", 2),
        ("CLOSESPIDER_ITEMCOUNT", 0),
        ("close_after_items", None),
        ("MEMUSAGE_LIMIT_MB", 3),
        ("MEMUSAGE_WARNING_MB", 0),
        ("FILES_EXPIRES", 90),
        ("DOWNLOAD_VERIFY_CERTIFICATES", False),
        ("DEFAULT_REQUEST_HEADERS", {"A": "b"}),
        ("HTTPCACHE_ENABLED", False),
        ("REFERER_ENABLED", True),
        ("REFERRER_POLICY", "no-referrer-when-downgrade"),
        ("SHOP", "a, b"),
    ],
)
def test_view_knows_our_names_scrapys_names_and_those_of_user_settings(view, name, value):
    assert view[name] == view.get(name, "x") == value


def test_view_converts_values(view):
    assert view.getlist("SHOP") == ["a", "b"]
    assert view.getlist("RETRY_HTTP_CODES")[:2] == [408, 429]
    assert (view.getbool("on"), view.getint("n"), view.getfloat("n")) == (True, 7, 7.0)
    assert (view.getbool("COOKIES_ENABLED"), view.getint("CONCURRENT_REQUESTS")) == (True, 64)
    assert view.getdict("json") == {"x": 1}
    assert (view.getint("nowhere", 3), view.getlist("nowhere"), view.getdict("none")) == (3, [], {})
    assert (view.getbool("nowhere"), view.getfloat("none", 2.5)) == (False, 2.5)
    with pytest.raises(ValueError, match=r"n: '7' is not true or false"):
        view.getbool("n")


def test_view_has_no_unknown_names_and_is_read_only(view):
    assert "DOWNLOAD_DELY" not in view
    assert view.get("FEEDS", {}) == {}
    with pytest.raises(KeyError, match="write -o"):
        view["FEEDS"]
    with pytest.raises(TypeError):
        view["delay"] = 3
    assert dict(view)["depth"] == 2
    assert len(view) == len(list(view))
