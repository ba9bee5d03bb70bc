"""Passages that users do not search for are recognised."""

import pytest

from airgen.text.unsearched_passages import CAPTION, FRAGMENT, FRONT_MATTER, NO_PROSE, REFERENCES, unasked

REFERENCE_LIST = """Adler, K. (2011). Bees in winter. J. Apic. 12(3), 45-61.
Brandt, L. and Osei, M. (2014). Wax and its uses. doi 10.1000/wax.
Chen, W. et al. (2016). Swarms. In Proceedings of the Bee Conference, pp. 12-19.
Dubois, A. (2019). Honey in trade. Vol. 4, pp. 3-9."""
CONTENTS = """The hive ........ 1
Frames and wax ....... 14
Feeding in winter ...... 29
Swarms ............ 41
Sale of honey ........ 60"""
PROSE = {
    "en": "Bees feed on their store of honey in winter and form a cluster that keeps the queen warm until spring.",
    "de": "Im Winter zehren die Bienen von ihrem Honig und bilden eine Traube, die die Königin bis zum Frühling wärmt.",
    "zh": "蜜蜂在冬天靠储存的蜂蜜过活，并聚成一团为蜂王保暖直到春天。",
    "ru": "Зимой пчёлы питаются запасом мёда и собираются в клубок, который согревает матку до самой весны.",
    "hi": "सर्दियों में मधुमक्खियाँ अपने जमा किए हुए शहद पर जीती हैं और रानी को गर्म रखने के लिए एक गुच्छा बनाती हैं।",
}


@pytest.mark.parametrize("language", sorted(PROSE))
def test_prose_is_asked_about(language: str) -> None:
    assert unasked("", PROSE[language], language) == ""


@pytest.mark.parametrize(
    ("title", "text", "kind"),
    [
        ("Winter", "See above.", FRAGMENT),
        ("", f"Figure 3. {PROSE['en']}", CAPTION),
        ("", f"Tabelle 2: {PROSE['en']}", CAPTION),
        ("References", REFERENCE_LIST, REFERENCES),
        ("", REFERENCE_LIST, REFERENCES),
        ("", CONTENTS, FRONT_MATTER),
        ("Bees", "Copyright © 2019 A. Dubois. All rights reserved. No part of this book may be copied. ISBN 0-00-1.",
         FRONT_MATTER),
        ("7. Acknowledgements > From the first author", PROSE["en"], FRONT_MATTER),
        ("Yields", "12.4 33.1 9.80 | 41.2 8.77 | 55.1 -- 6.02 / 17.3 18.2 11 12 13 14 15 16 17 (18) [19] 20", NO_PROSE),
        ("Index", ", ".join(f"honeycomb{place}" for place in "abcdefghijklmnopqrstuvwxyz" * 2), NO_PROSE),
    ],
)  # fmt: skip
def test_what_nobody_looks_for(title: str, text: str, kind: str) -> None:
    assert unasked(title, text, "en") == kind


def test_prose_that_cites_or_shows_figures_is_asked_about() -> None:
    """One citation is no list, and a long text may begin with a caption."""
    assert unasked("", f"{PROSE['en']} This was first shown by Adler (2011), see p. 45.", "en") == ""
    assert unasked("", f"Figure 3. {' '.join([PROSE['en']] * 4)}", "en") == ""
    assert unasked("Delayed acknowledgements > Timers", PROSE["en"], "en") == ""
    assert unasked("", f"References to bees in old books. {PROSE['en']}", "en") == ""
