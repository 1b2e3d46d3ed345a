"""Options stand before, between and after arguments, and mean the same everywhere."""

from itertools import permutations

import pytest

from headwise import cli
from headwise.errors import UserError

LINES: list[tuple[str, list[str], list[str]]] = [  # arguments in their order, and options with their values
    ("generate", ["m", "text"], ["--chat", "--seed 2", "--temperature=0.5", "--sample"]),
    ("generate", ["m", "one", "two"], ["--max-new-tokens 5"]),
    ("translate", ["m", "in.txt"], ["-o out.txt", "--beam-size 2", "--sentences"]),
    ("align", ["m"], ["--source a", "--target b", "-o c"]),
    ("export", ["m", "out"], ["--to onnx", "--compute int8"]),
    ("inspect", ["m", "a dog"], ["--layer -1", "--format text", "--translation b"]),
    ("caption", ["m", "a.jpg", "b.jpg"], ["--beam-size 3"]),
]


def parsed(command: str, words: list[str]) -> dict[str, object]:
    return vars(cli.parse([command, *words]))


@pytest.mark.parametrize(("command", "arguments", "options"), LINES)
def test_options_stand_anywhere(command: str, arguments: list[str], options: list[str]) -> None:
    units = [[word] for word in arguments] + [option.split(" ") for option in options]
    expected = parsed(command, [word for unit in units for word in unit])
    orders = [order for order in permutations(range(len(units))) if is_sorted([i for i in order if i < len(arguments)])]
    for order in orders:
        words = [word for i in order for word in units[i]]
        assert parsed(command, words) == expected, words


def is_sorted(numbers: list[int]) -> bool:
    return numbers == sorted(numbers)


def test_a_chat_reads_in_its_natural_order() -> None:
    options = cli.parse(["generate", "m", "--chat", "Tell me a joke."])
    assert (options.model, options.chat, options.prompts) == ("m", True, ["Tell me a joke."])
    assert cli.parse(["generate", "m"]).prompts == []
    assert cli.parse(["translate", "--beam-size", "2", "m"]).input == "-"


def test_what_follows_two_hyphens_is_no_option() -> None:
    assert cli.parse(["generate", "m", "--chat", "--", "--seed", "-1"]).prompts == ["--seed", "-1"]
    options = cli.parse(["tune", "--out", "x", "--train", "a.tsv", "--", "m"])
    assert (options.init, options.train) == ("m", ["a.tsv"])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tune --out x --train a.tsv m", "--train takes all words after it, so write it last: the following arguments"),
        ("translate --ensemble a m", "--ensemble takes all words after it"),
        ("translate --beam-size 2", "the following arguments are required: MODEL"),
        ("translate m a b", "headwise translate: unexpected argument 'b'"),
        (
            "translate m --beem-size 3 a",
            "headwise translate: unexpected argument '--beem-size'; did you mean '--beam-size'?",
        ),
    ],
)
def test_a_word_in_the_wrong_place_is_explained(line: str, expected: str) -> None:
    with pytest.raises(UserError) as raised:
        cli.parse(line.split())
    assert str(raised.value).startswith(expected)
