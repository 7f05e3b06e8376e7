#!/usr/bin/env python3
"""Optuna chooses and prunes, Trireme trains: trials through `trireme tune --ask-tell`, two at a time.

usage: optuna_drive.py SWEEP.yaml FOLDER [TRIALS] [TRIREME]       (pip install optuna)
"""
import json
import subprocess
import sys

import optuna

TOGETHER = 2


def options(trial):
    return {"optim.lr": trial.suggest_float("optim.lr", 1e-3, 0.5, log=True),
            "optim.momentum": trial.suggest_float("optim.momentum", 0, 0.95),
            "model.hidden": trial.suggest_categorical("model.hidden", [16, 32, 64])}


def main():
    sweep, folder = sys.argv[1:3]
    left = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    trireme = sys.argv[4] if len(sys.argv) > 4 else "trireme"
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1),
                                pruner=optuna.pruners.MedianPruner(n_startup_trials=4))
    tuner = subprocess.Popen([trireme, "tune", sweep, "--ask-tell", "--out", folder], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, bufsize=1)
    running = {}

    def say(**words):
        tuner.stdin.write(json.dumps(words) + "\n")

    def start():
        nonlocal left
        if left > 0:
            left -= 1
            trial = study.ask()
            running[trial.number] = trial
            say(run=trial.number, params=options(trial))

    for _ in range(TOGETHER):
        start()
    while running:
        line = json.loads(tuner.stdout.readline())
        if "error" in line and "trial" not in line:
            sys.exit(f"trireme: {line['error']}")
        trial = running[line["trial"]]
        if "state" not in line:  # a value on the way
            trial.report(line["value"], line["step"])
            if trial.should_prune():
                say(stop=trial.number)
        elif line["state"] != "running":
            ends = {"done": optuna.trial.TrialState.COMPLETE, "stopped": optuna.trial.TrialState.PRUNED}
            state = ends.get(line["state"], optuna.trial.TrialState.FAIL)
            study.tell(trial, line["value"] if line["state"] == "done" else None, state)
            del running[line["trial"]]
            start()
    tuner.stdin.close()
    print(f"{len(study.trials)} trials, best {study.best_value:.4f} with {study.best_params}")
    sys.exit(tuner.wait())


if __name__ == "__main__":
    main()
