"""TensorFlow's noise: dropped where nobody asked for it, kept where somebody did."""

import logging
import os

import pytest

from hwprobe.quiet import native_log_silenced, retracing_expected


def test_native_messages_are_dropped_and_standard_error_comes_back(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    with native_log_silenced():
        os.write(2, b"cudart_stub.cc: nothing to see\n")
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "afterwards\n"
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "3"


def test_native_messages_stay_for_someone_who_chose_a_level(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    with native_log_silenced():
        os.write(2, b"cudart_stub.cc: wanted\n")
    assert capfd.readouterr().err == "cudart_stub.cc: wanted\n"


def test_standard_error_comes_back_after_an_exception(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    with pytest.raises(RuntimeError, match="broken"), native_log_silenced():
        raise RuntimeError("broken")
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "afterwards\n"


def test_the_warning_of_retracing_is_dropped_and_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("tensorflow")
    logger.propagate, before = True, logger.propagate
    try:
        with retracing_expected():
            logger.warning("5 out of the last 5 calls triggered tf.function retracing.")
            logger.warning("something else")
        logger.warning("6 out of the last 6 calls triggered tf.function retracing.")
    finally:
        logger.propagate = before
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == ["something", "6"]
