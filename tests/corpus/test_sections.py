"""Packing paragraphs into sections loses nothing and keeps its limits."""

from hypothesis import given
from hypothesis import strategies as st

from airgen.corpus.readers.sections import Block, sections, slug

paragraph = st.integers(1, 80).map(lambda size: " ".join(f"w{size}x{place}" for place in range(size)))
block = st.one_of(
    st.builds(Block, paragraph),
    st.builds(Block, paragraph, st.just(0), st.booleans()),
    st.builds(Block, st.sampled_from(["Alpha", "Alpha 2", "Beta", "Gamma"]), st.integers(1, 3)),
)


@given(st.lists(block, max_size=25), st.integers(1, 30), st.integers(40, 100))
def test_every_paragraph_is_in_exactly_one_section_in_order(blocks: list[Block], least: int, most: int) -> None:
    found = list(sections(blocks, "Doc", min_words=least, max_words=most))
    after = [*blocks[1:], Block("", 1)]  # a heading with nothing below it is a text
    texts = [
        item.text
        for item, following in zip(blocks, after, strict=False)
        if not item.level or (following.level and (following.level <= item.level or not following.text))
    ]
    assert "\n\n".join(part.text for part in found) == "\n\n".join(texts)
    assert len({part.anchor for part in found}) == len(found)
    joined = any(item.joins for item in blocks)
    for part in found:
        count = len(part.text.split())
        if not joined:  # a paragraph that stays with the next may make a section as long as both
            assert count <= most + max(least, 80)


def test_a_heading_like_the_anchor_of_a_repeated_one() -> None:
    names = ("Use", "Use", "Use 2", "Use", "Use 2")
    found = sections([block for name in names for block in (Block(name, 1), Block(f"The words of {name}."))])
    assert [part.anchor for part in found] == ["use", "use-2", "use-2-2", "use-3", "use-2-3"]


def test_titles_are_paths_of_headings() -> None:
    blocks = [Block("A", 1), Block("one"), Block("B", 3), Block("two"), Block("C", 2), Block("three")]
    found = [(part.title, part.text) for part in sections(blocks, "Doc", min_words=1)]
    assert found == [("Doc > A", "one"), ("Doc > A > B", "two"), ("Doc > A > C", "three")]


def test_what_announces_stays_with_what_it_announces() -> None:
    blocks = [Block("w " * 30 + "as follows:"), Block("x " * 30)]
    assert len(list(sections(blocks, min_words=1, max_words=40))) == 1


def test_slugs_keep_letters_of_all_scripts() -> None:
    assert slug("  Größe & 数据: x ") == "größe-数据-x"
