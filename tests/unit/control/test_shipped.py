import pytest

from gateway.control.shipped import in_checkout, shipped_file


def test_shipped_files_are_found_where_this_installation_keeps_them() -> None:
    assert in_checkout()
    assert shipped_file("embedded.yaml").read_text().startswith("#")


def test_a_shipped_file_that_is_missing_says_what_to_do() -> None:
    with pytest.raises(FileNotFoundError, match="install it again"):
        shipped_file("none.yaml")
