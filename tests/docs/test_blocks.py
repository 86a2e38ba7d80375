"""The reader of documents itself."""

import pytest

from tests.docs.documents import Block, Command, blocks, matches


def test_a_block_is_found_with_its_line_and_language() -> None:
    assert list(blocks("Text.\n\n```console\n$ true\n```\n")) == [Block("console", "$ true", 3)]


def test_comments_above_a_block_belong_to_it_and_not_to_the_next() -> None:
    text = (
        "<!-- machine: T4, A100 -->\n<!-- output -->\n<!-- status: 1 -->\n```console\n$ false\n```\n```python\nx\n```\n"
    )
    assert list(blocks(text)) == [
        Block("console", "$ false", 4, machine=("T4", "A100"), compares_output=True, status=1),
        Block("python", "x", 7),
    ]


def test_a_block_can_be_skipped_with_a_reason() -> None:
    assert next(blocks("<!-- skip: needs a cluster -->\n```console\n$ srun x\n```")).skip == "needs a cluster"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- skip -->\n```console\n$ true\n```",
        "<!-- output -->\nText.\n",
        "```console\n$ true\n",
    ],
    ids=["skipped without a reason", "a comment above no block", "never closed"],
)
def test_a_document_that_says_something_else_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        list(blocks(text))


def test_commands_are_told_from_what_they_print() -> None:
    block = next(blocks("```console\n$ cat <<E\n> a\n>\n> E\na\n\n> b\n$ true\n```"))
    assert block.commands == [Command("cat <<E\na\n\nE", "a\n\n> b\n"), Command("true")]


def test_output_before_any_command_is_an_error() -> None:
    with pytest.raises(ValueError, match="begins with no command"):
        _ = Block("console", "text", 1).commands


MATCHES = [
    ("a\nb", "a\nb\n", True),
    ("a\nb", "a\nc\n", False),
    ("a", "a\nb\n", False),
    ("took ... s", "took 0.31 s", True),
    ("took ... s", "took 0.31 ms", False),
    ("a\n...\nd", "a\nb\nc\nd", True),
    ("a\n...\nd", "a\nd", True),
    ("a\n...", "a\nb\nc", True),
    ("a\n...\nd", "a\nb", False),
    ("(a)*", "(a)*", True),
    ("", "", True),
    ("", "a", False),
]


@pytest.mark.parametrize(("shown", "printed", "same"), MATCHES)
def test_three_dots_stand_for_anything_and_nothing_else_does(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same
