"""The garbage collector pauses inside of blocks of any thread, and works again behind the last."""

import gc
import os
import sys
import threading
from types import ModuleType

import pytest

from cubepy.collection import paused_collection


def test_the_collector_works_again_behind_the_outermost_block():
    assert gc.isenabled()
    with paused_collection():
        with paused_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_a_pause():
    with pytest.raises(KeyError), paused_collection():
        raise KeyError
    assert gc.isenabled()


def test_ctrl_c_on_the_way_into_a_block(monkeypatch: pytest.MonkeyPatch):
    """Python raises behind a call that has had its effect."""
    real = gc.disable

    def interrupted() -> None:
        real()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gc, "disable", interrupted)
        with pytest.raises(KeyboardInterrupt), paused_collection():
            pass
    assert gc.isenabled()
    with paused_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off():
    gc.disable()
    try:
        with paused_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_last_thread_ends_the_pause():
    began, end = threading.Event(), threading.Event()

    def pause() -> None:
        with paused_collection():
            began.set()
            end.wait(10)

    other = threading.Thread(target=pause)
    with paused_collection():
        other.start()
        assert began.wait(10)
    assert not gc.isenabled()
    end.set()
    other.join()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_collects_though_another_thread_of_its_parent_paused():
    began, end = threading.Event(), threading.Event()

    def pause() -> None:
        with paused_collection():
            began.set()
            end.wait(10)

    other = threading.Thread(target=pause)
    other.start()
    assert began.wait(10)
    child = os.fork()
    if not child:
        os._exit(0 if gc.isenabled() else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    end.set()
    other.join()
    assert status == 0


def test_what_is_made_where_modules_are_loaded_is_old(monkeypatch: pytest.MonkeyPatch):
    """Looking through it at the end of the block takes much of a first call."""
    gc.unfreeze()  # what the tests' own set-up has frozen
    with paused_collection():
        monkeypatch.setitem(sys.modules, "cubepy_tests_loaded", ModuleType("loaded"))
        kept = [[] for _ in range(5000)]
    assert any(item is kept for item in gc.get_objects(generation=2))
    with paused_collection():
        more = [[] for _ in range(5000)]
    assert not any(item is more for item in gc.get_objects(generation=2))


def test_what_a_program_froze_stays_frozen(monkeypatch: pytest.MonkeyPatch):
    gc.freeze()
    frozen = gc.get_freeze_count()
    with paused_collection():
        monkeypatch.setitem(sys.modules, "cubepy_tests_loaded", ModuleType("loaded"))
    assert gc.get_freeze_count() > frozen // 2
