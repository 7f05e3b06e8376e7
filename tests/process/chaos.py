#!/usr/bin/env python3
"""`trireme chaos` against elastic runs: faults of a schedule happen, the job's answer is told, and the weights are those of one process.

usage: chaos.py TRIREME
"""
import json
import os
import re
import signal
import subprocess
import time
import unittest

import elastic
from elastic import FOR_EVER
from launched import LIMIT_S, TRIREME, long_test, ranks_of

SCHEDULE = """# each kind that needs no root; first the one that three other workers have to repair
0 corrupt #5
0.5 full-disk #0 0.4
0.7 kill 1
0.8 clock 0 0.5
1.2 stop #1 0.5
1.8 delay 2 0.2
2.2 kill #2
2.6 fail #3
"""


def chaos(*words):
    return subprocess.run([TRIREME, "chaos", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)


class Chaos(elastic.Elastic):
    def test_a_schedule_is_played_and_the_weights_are_those_of_one_process(self):
        (self.path / "faults").write_text(SCHEDULE)
        run = self.start_running("struck", "-n", "4", "--elastic", "1:8", "--restarts", "99", "comm.chaos=on", "train.verify_every=1", *FOR_EVER)
        done = chaos(self.path / "struck", "--schedule", self.path / "faults", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        wanted = [line.split()[1] for line in SCHEDULE.splitlines()[1:]]
        found = [fault["fault"] for fault in told["faults"]]
        self.assertEqual(found, wanted, told)
        for fault in told["faults"]:
            self.assertGreaterEqual(fault["next_step_s"], 0, told)
        self.assertTrue(run.wait_for("ended with exit code 1; started again"), run.text())
        self.assertTrue(run.wait_for("] is rank ", 3), run.text())  # the two that were killed, and this one
        self.check(run, *FOR_EVER)
        self.assertIn("repaired from these", run.text())

    def test_a_flipped_bit_is_not_handed_on_when_its_finder_dies(self):
        """The bit flips, and a worker is killed before the next comparison: there the newcomer gets a state that most had."""
        words = ("train.verify_every=100000", "checkpoint.every_epochs=0", *FOR_EVER)  # nobody compares before a save
        (self.path / "faults").write_text("0.2 corrupt 0\n")  # in worker 0, from whom others get their state
        run = self.start_running("flip", "-n", "4", "--elastic", "1:8", "--restarts", "99", "comm.chaos=on", *words)
        done = chaos(self.path / "flip", "--schedule", self.path / "faults")  # ends when a step came after the flip
        self.assertEqual(done.returncode, 0, done.stderr)
        os.kill(ranks_of(run.process.pid)[3], signal.SIGKILL)
        self.assertTrue(run.wait_for("repaired from these"), run.text())
        run.process.terminate()
        self.assertEqual(run.end(), 128 + signal.SIGTERM, run.text())
        self.assertRegex(run.text(), r"after step \d+ weights of rank 0 differ from most replicas': repaired from these")

    def tie(self, *words):
        """One stands still, so that the bits of two others flip before the same step: two of four are right."""
        (self.path / "faults").write_text("0 stop 0 0.2\n0 corrupt 1\n0 corrupt 2\n")
        run = self.start_running("tie", "-n", "4", "--elastic", "4:4", "comm.chaos=on", "comm.heartbeat_ms=2000", "train.verify_every=1", *words)
        while "checkpoint.every_steps=300" in words and run.is_running() and not list((self.path / "tie/checkpoints").glob("step-*")):
            time.sleep(0.01)
        done = chaos(self.path / "tie", "--schedule", self.path / "faults")
        self.assertEqual(done.returncode, 0, done.stderr)
        return run

    def test_replicas_that_differ_without_a_majority_begin_at_the_newest_checkpoint(self):
        run = self.tie("checkpoint.every_steps=300", *FOR_EVER)
        self.assertTrue(run.wait_for("count for nothing: the run continues from step"), run.text())
        self.check(run, *FOR_EVER)
        self.assertRegex(run.text(), r"differ before step \d+, and none has a majority: .* none of them counts")
        self.assertRegex(run.text(), r"count for nothing: the run continues from step \d*00, its newest checkpoint")

    @long_test
    def test_without_one_they_begin_with_the_weights_of_another_model_as_at_first(self):
        self.assertEqual(self.start("source", "train.steps=5").end(), 0)
        words = ("model.from=source", "checkpoint.every_epochs=0", *FOR_EVER)
        run = self.tie(*words)
        self.assertTrue(run.wait_for("count for nothing: the run continues from step 0"), run.text())
        self.check(run, *words)
        self.assertNotIn("killed by signal", run.text())

    def test_what_they_begin_with_has_no_best_of_later_steps(self):
        words = ("optim.lr=0", "model.freeze=[bn1.*]", "checkpoint.keep_best=true", "checkpoint.every_epochs=0",
                 "train.eval_every_steps=100", *FOR_EVER)
        run = self.tie(*words)
        self.assertTrue(run.wait_for("count for nothing: the run continues from step 0"), run.text())
        self.assertTrue(run.wait_for(": resumed, step"), run.text())  # by then the best of the steps before is removed
        while run.is_running() and not (self.path / "tie/best/best.json").exists():
            time.sleep(0.01)
        self.check(run, *words)
        self.assertEqual(json.loads((self.path / "tie/best/best.json").read_text())["step"], 100)  # no later one is better

    def test_repairs_of_a_worker_that_was_replaced_count_again(self):
        (self.path / "faults").write_text("0 corrupt 1\n")
        run = self.start_running("limit", "-n", "3", "--elastic", "1:3", "--restarts", "9", "comm.chaos=on", "train.verify_every=1",
                                 "train.guard_limit=1", *FOR_EVER)
        chaos(self.path / "limit", "--schedule", self.path / "faults")
        self.assertTrue(run.wait_for("repaired from these"), run.text())
        for rank in range(3):
            self.assertTrue(run.signal(rank, signal.SIGKILL), run.text())
            self.assertTrue(run.wait_for(": 3 workers, step", rank + 1), run.text())
        chaos(self.path / "limit", "--schedule", self.path / "faults")
        self.assertTrue(run.wait_for("repaired from these", 2), run.text())
        run.process.terminate()
        self.assertEqual(run.end(), 128 + signal.SIGTERM, run.text())
        self.assertNotIn("differ again", run.text())

    def test_what_it_cannot_do_is_said_in_one_line(self):
        run = self.start_running("plain", "-n", "2", "--elastic", "1:2", *FOR_EVER)
        launcher, folder = run.process.pid, self.path / "plain"
        (self.path / "faults").write_text("0 kill 7\n")  # whom nobody has started
        waits = subprocess.Popen([TRIREME, "chaos", folder, "--schedule", self.path / "faults"], stdout=subprocess.PIPE, text=True)
        for words, code, says in (
            ((folder, "--faults", "corrupt"), 2, "corrupt: happens inside of a worker: want a run with comm.chaos=on, worker 0 has it off"),
            ((launcher, "--faults", "kill,full-disk"), 2, "want a run with comm.chaos=on"),
            ((self.path / "no",), 1, "want the folder of a run, or the id of a process, got nothing"),
            ((self.path,), 1, "no worker of this run is at work on this machine"),
            ((os.getpid(),), 1, "want the id of a 'trireme train -n N', or of one of its workers, got another process"),
        ):
            done = chaos(*words)
            self.assertEqual((done.returncode, says in done.stderr, done.stderr.count("error")), (code, True, 1), done.stderr)
        done = chaos(launcher, "--faults", "stop", "--for", "0.6", "--every", "0.4", "--limit", "30")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"s  stop +worker \d \(\d+\) +for [0-9.]+ s +next step after \d+ ms")
        self.assertRegex(waits.communicate()[0], r"s  kill +left out: for 10 s no worker was fit for it\n0 faults in .* 1 left out; ")
        run.process.send_signal(signal.SIGINT)

    def test_a_flip_that_did_not_happen_is_said(self):
        """Worker 0 is stopped, so that the others do not come to the step of the two flips before they are killed."""
        (self.path / "faults").write_text("0 corrupt 1\n0 corrupt 2\n")
        run = self.start_running("over", "-n", "4", "--elastic", "4:4", "comm.chaos=on", "comm.heartbeat_ms=10000", *FOR_EVER)
        workers = ranks_of(run.process.pid)
        os.kill(workers[0], signal.SIGSTOP)
        player = subprocess.Popen([TRIREME, "chaos", self.path / "over", "--schedule", self.path / "faults"], stdout=subprocess.PIPE, text=True)
        while player.poll() is None and not all(self.has_flip_to_come(workers[rank]) for rank in (1, 2)):
            time.sleep(0.01)
        run.process.kill()
        for pid in workers.values():
            os.kill(pid, signal.SIGKILL)
        text = player.communicate()[0]
        self.assertEqual(len(re.findall(r"corrupt +worker [12] \(\d+\) +did not happen: the job has not come to step \d+\n", text)), 2, text)

    @staticmethod
    def has_flip_to_come(pid):
        """In the page that `trireme chaos` writes (base/chaos.h)."""
        for name in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith("/memfd:trireme-chaos"):
                with open(f"/proc/{pid}/fd/{name}", "rb") as page:
                    return page.read(64)[56:] != bytes(8)
        return False

    def test_what_was_stopped_continues_when_chaos_is_ended(self):
        (self.path / "faults").write_text("0 stop 0 60\n")
        run = self.start_running("asked", "-n", "2", "--elastic", "1:2", "comm.chaos=on", *FOR_EVER)
        pid = ranks_of(run.process.pid)[0]
        for end, code in ((lambda player: player.send_signal(signal.SIGINT), 0), (lambda player: player.send_signal(signal.SIGHUP), 0),
                          (lambda player: player.stdout.close(), 128 + signal.SIGPIPE)):
            player = subprocess.Popen([TRIREME, "chaos", self.path / "asked", "--schedule", self.path / "faults"], stdout=subprocess.PIPE)
            until = time.monotonic() + LIMIT_S
            while self.state_of(pid) != "T" and time.monotonic() < until:
                time.sleep(0.01)
            self.assertEqual(self.state_of(pid), "T")
            end(player)
            self.assertEqual(player.wait(LIMIT_S), code)
            self.assertNotEqual(self.state_of(pid), "T")
            player.stdout.close()
        run.process.send_signal(signal.SIGINT)

    @staticmethod
    def state_of(pid):
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]


# What is inherited is tested where it is from.
for name in [name for name in dir(elastic.Elastic) if name.startswith("test_")]:
    setattr(Chaos, name, None)

if __name__ == "__main__":
    unittest.main(Chaos and "__main__", verbosity=2, argv=["chaos.py", "Chaos"])
