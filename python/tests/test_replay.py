"""quire.replay: the program's report as a mapping."""

import json

import pytest

import quire


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 100 * i, "input_length": 1024, "output_length": 4, "hash_ids": [1, 2]}
            for i in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def program():
    try:
        quire.find_program()
    except FileNotFoundError as error:
        pytest.skip(str(error))


def test_report(trace, tmp_path):
    result = quire.replay(trace, format="mooncake", num_gpu_blocks=1000, html=tmp_path / "out.html")
    assert len(result.requests) == 5 and len(result) == len(dict(result)) > 3
    assert {**result} == result.report and (tmp_path / "out.html").stat().st_size > 0
    assert "5 requests" in repr(result)
    rows = result.requests
    assert all(isinstance(value, (int, float, str, type(None))) for value in rows[0].values())


def test_frame(trace):
    pandas = pytest.importorskip("pandas")
    frame = quire.replay(trace, format="mooncake").to_frame()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 5


def test_refusals(trace, tmp_path):
    with pytest.raises(ValueError, match="no-such|no_such"):
        quire.replay(trace, no_such=1)
    with pytest.raises(ValueError):
        quire.replay(tmp_path / "missing.jsonl")
    with pytest.raises(FileNotFoundError):
        quire.replay(trace, program=tmp_path / "missing")
