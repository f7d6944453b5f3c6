"""The log: killed at every byte, damaged, full disks, two writers."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time

import pytest

from fairkit import FairkitError, Watch
from fairkit.support.files import FileError
from fairkit_watch.log import Log, StateError, frame, locked, read

RECORDS = [{"seq": i, "text": 'ä\n{"' * i, "days": {}} for i in range(5)]


def test_every_cut_leaves_exactly_the_whole_records(tmp_path):
    raw = b"".join(frame(one) for one in RECORDS)
    ends = [len(b"".join(frame(one) for one in RECORDS[:k])) for k in range(len(RECORDS) + 1)]
    path = tmp_path / "log"
    for cut in range(len(raw) + 1):
        path.write_bytes(raw[:cut])
        log = Log(path)
        whole = max(k for k, end in enumerate(ends) if end <= cut)
        assert log.records == RECORDS[:whole]
        assert log.cut == cut - ends[whole]
        log.append({"seq": "next"})
        log.close()
        assert read(path.read_bytes(), "log")[0] == [*RECORDS[:whole], {"seq": "next"}]
    # what a file system may leave behind after a power failure: zeros at the end
    path.write_bytes(raw + bytes(4096))
    log = Log(path)
    log.close()
    assert log.records == RECORDS


def test_damage_before_the_end_is_an_error_and_nothing_is_cut(tmp_path):
    raw = bytearray(b"".join(frame(one) for one in RECORDS))
    last = len(frame(RECORDS[-1]))
    path = tmp_path / "log"
    for at in range(0, len(raw) - last, 3):
        damaged = bytearray(raw)
        damaged[at] ^= 0x41
        path.write_bytes(damaged)
        with pytest.raises(StateError, match="damaged at byte"):
            Log(path)
        assert path.read_bytes() == bytes(damaged)


def test_a_write_that_fails_leaves_the_log_as_it_was(tmp_path):
    log = Log(tmp_path / "log")
    log.append(RECORDS[1])
    before = (tmp_path / "log").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    usual = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for room in range(0, 60, 7):
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, hard))
            with pytest.raises(FileError, match="full"):
                log.append({"text": "x" * 500})
            assert (tmp_path / "log").read_bytes() == before
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, usual)
    log.append(RECORDS[2])
    log.close()
    assert read((tmp_path / "log").read_bytes(), "log")[0] == [RECORDS[1], RECORDS[2]]


def test_two_writers_on_one_folder(begun, tmp_path):
    with begun():
        with pytest.raises(StateError, match="one writer at a time"):
            Watch.open(tmp_path / "watch")
        Watch.open(tmp_path / "watch", write=False).look()
    Watch.open(tmp_path / "watch").close()


def test_the_lock_ends_with_the_process(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom fairkit_watch.log import locked\n"
        f"with locked(Path({str(tmp_path / 'lock')!r})):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StateError), locked(tmp_path / "lock"):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with locked(tmp_path / "lock"):
        pass


ADDER = """
import sys
from fairkit import Watch
with Watch.open({folder!r}) as watch:
    for t in range(1, 1000):
        table = {{"decision": [t % 2, 1], "sex": ["f", "m"]}}
        watch.add(table, day=f"2024-01-{{1 + t % 30:02}}", batch=str(t), alarms=False)
        print(t, flush=True)
"""


@pytest.mark.long
def test_kill_9_loses_nothing_that_was_acknowledged(begun, tmp_path):
    begun().close()
    folder = str(tmp_path / "watch")
    code = ADDER.format(folder=folder)
    for delay in (0.05, 0.11):
        run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert run.stdout.readline()
        time.sleep(delay)
        run.kill()
        said = [int(line) for line in run.stdout.read().split()]
        run.wait()
        run.stdout.close()
        with Watch.open(folder) as watch:
            counted = {int(one["batch"]) for one in watch.book.records if "batch" in one}
            assert counted >= {1, *said}
            assert len(counted) <= len({1, *said}) + 1  # one more may be written and not yet said
            assert watch.look().rows == 2 * len(counted)
            days = json.loads(watch.totals())
        assert sum(sum(one[""][""]["d"]) for one in days.values()) == 2 * len(counted)
        (tmp_path / "watch" / "totals.log").write_bytes(
            b"".join(frame(one) for one in Watch.open(folder, write=False).book.records[:1])
        )


def test_a_full_disk_in_the_middle_of_an_add(begun, tmp_path, decisions, day):
    with begun(label="outcome", id="id", horizon=5) as watch:
        watch.add(decisions(0), day=day(0))
        before = watch.totals()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        usual = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = (tmp_path / "watch" / "totals.log").stat().st_size
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, hard))
            with pytest.raises(FairkitError, match="full"):
                watch.add(decisions(1), day=day(1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, usual)
        assert watch.totals() == before
        watch.add(decisions(1), day=day(1))
    assert Watch.open(tmp_path / "watch", write=False).look().rows == 1200
