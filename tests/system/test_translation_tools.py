"""Translation tools as clients of the server, by their own code where it is installed.

Weblate: `pip install --no-deps weblate` is enough. OmegaT: the requests of omegat-libre-translate 0.2.
"""

import ast
import importlib.util
import json
import sys
import types
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import requests
from programs import Program

KEY = "0123456789abcdef"
OF_REQUESTS = (
    "api_base_url",
    "get_api_url",
    "get_headers",
    "get_auth",
    "check_failure",
    "request",
    "map_language_code",
)


@pytest.fixture(scope="module")
def url(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"{KEY} tools\n", encoding="utf-8")
    command = ["serve", str(model_path), "--languages", "en-de", "--port", "0", "--device", "cpu", "--api-keys", keys]
    with Program(list(map(str, command))) as process:
        assert process.stderr
        yield json.loads(process.stderr.readline())["url"]
        process.kill()


@pytest.fixture
def weblate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Weblate's class for LibreTranslate, with its methods for requests, but without Django."""
    if importlib.util.find_spec("weblate") is None:
        pytest.skip("weblate is not installed")
    (package,) = importlib.util.find_spec("weblate").submodule_search_locations  # type: ignore[union-attr]
    folder = Path(package) / "machinery"
    parent, base, forms = (types.ModuleType(f"of_weblate{name}") for name in ("", ".base", ".forms"))
    parent.__path__ = [str(folder)]
    vars(base).update(request_methods((folder / "base.py").read_text(encoding="utf-8")))
    vars(forms)["LibreTranslateMachineryForm"] = object
    for module in (parent, base, forms):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    spec = importlib.util.spec_from_file_location("of_weblate.libretranslate", folder / "libretranslate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def client(**settings: str) -> Any:
        made = module.LibreTranslateTranslation()
        made.settings, made.language_map = settings, {}
        return made

    return client


def request_methods(source: str) -> dict[str, Any]:
    """The class of Weblate's `machinery/base.py`, reduced to the methods that make requests."""
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    own = next(one for one in classes.values() if any(getattr(part, "name", "") == "request" for part in one.body))
    own.body = [part for part in own.body if getattr(part, "name", "") in OF_REQUESTS]
    own.bases, own.keywords, own.decorator_list = [], [], []
    own.name = "BatchMachineTranslation"
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)

    def request(method: str, url: str, *, raise_for_status: bool, **more: Any) -> requests.Response:
        assert not raise_for_status
        return requests.request(method, url, **more)

    names: dict[str, Any] = {"chain": chain, "quote": quote, "request": request, "cached_property": property}
    names |= {"HTTPError": requests.HTTPError, "JSONDecodeError": requests.exceptions.JSONDecodeError}
    names |= {"get_site_url": lambda: "https://weblate.example", "MachineTranslationError": RuntimeError}
    exec(compile(ast.fix_missing_locations(ast.Module([future, own], [])), "base.py", "exec"), names)
    return names


@pytest.mark.thorough
def test_weblate_translates(url: str, weblate: Callable[..., Any]) -> None:
    client = weblate(url=url, key=KEY)
    assert client.download_languages() == ["en", "de"]
    assert client.map_language_code("pt_BR") == "pt-BR"
    texts = ["a b c [X7X] d", "e f", "a b", "[X0X]"]
    found = client.download_multiple_translations("en", "de", [(text, None) for text in texts])
    assert list(found) == texts and all(one["text"] and one["source"] == text for text, (one,) in found.items())
    assert found["[X0X]"][0]["text"] == "[X0X]" and "[X7X]" in found["a b c [X7X] d"][0]["text"]


def test_weblate_shows_the_servers_errors(url: str, weblate: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match="API key"):
        weblate(url=url, key="").download_multiple_translations("en", "de", [("a", None)])
    with pytest.raises(Exception, match="xx is not supported"):
        weblate(url=url, key=KEY).download_multiple_translations("en", "xx", [("a", None)])


def omegat(address: str, source: str, target: str, text: str) -> str:
    """The request of `LibreTranslate.translate`: a form with sorted names, by Java's `HttpURLConnection`."""
    form = urlencode({"q": text, "source": source.lower(), "target": target.lower()}).encode()
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Content-Length": str(len(form)),
        "User-Agent": "Java/17.0.15",
        "Accept": "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2",
    }
    with urllib.request.urlopen(urllib.request.Request(address, form, headers)) as answer:
        return json.loads(answer.read())["translatedText"]


def test_omegat_translates(url: str) -> None:
    assert omegat(f"{url}translate?api_key={KEY}", "EN", "DE", "a b & c").strip()
    tagged = omegat(f"{url}translate?api_key={KEY}", "en", "de", "a <b0>b</b0> c<x1/> d")
    assert all(tag in tagged for tag in ("<b0>", "</b0>", "<x1/>"))
    with pytest.raises(urllib.error.HTTPError, match="403"):
        omegat(f"{url}translate", "en", "de", "a")
