from preflight.report.text import clean, last_lines, one_line, without_surrogates


def test_escape_sequences_go():
    assert clean("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x07 \x9b2Jend") == (
        "red link end"
    )


def test_an_unfinished_escape_hides_nothing():
    assert clean("\x1b]0;title never ends, and here is the error") == (
        "0;title never ends, and here is the error"
    )
    assert clean("end\x1b") == "end\\x1b"


def test_what_xml_refuses_is_spelt_out():
    assert clean("a\x00b\x0bc\ud800d\ufffee\uffff\x85") == (
        "a\\x00b\\x0bc\\ud800d\\ufffee\\uffff\\x85"
    )


def test_marks_that_turn_the_line_are_spelt_out():
    assert clean("a\u202eb") == "a\\u202eb"


def test_lines_and_tabs_stay():
    assert clean("a\r\nb\rc\n\td") == "a\nb\nc\n\td"


def test_one_line():
    assert one_line("  a\n\n b\t\u2028c ") == "a b c"


def test_last_lines():
    assert last_lines("one\n\ntwo\r 10 %\r\n\x1b[0m\nthree\n", 2) == " 10 %\nthree"
    assert last_lines("x" * 5000, 3) == "x" * 2000


def test_only_surrogates_are_spelt_out_for_json():
    assert without_surrogates("a\udcff\x00\ufffe😀") == "a\\udcff\x00\ufffe😀"
