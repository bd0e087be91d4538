#!/usr/bin/env python3
"""Runs the shell commands of README.md, in the order of the file, in a copy of the tree.

    tests/build/readme_commands.py            runs them; prints what is not run, and why
    tests/build/readme_commands.py --list     prints them alone

All ```sh blocks are one shell, so that a block may use the variables of the blocks before it. A
comment in the line above a block changes what happens to it:

    <!-- not run: WHY -->     the block is left out: what it needs is not here
    <!-- server -->           one command that does not end: it is started, the next block waits until
                              its port answers, and it is ended with SIGTERM when all others have run

HOME is a folder of the test. The ports of README.md are replaced by free ones.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/style"))
from check import files_by_git, files_by_walk

MAX_NOT_RUN = 3  # more than these few, and the README is no longer tested
TIME_LIMIT_S = 840
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")

PROLOGUE = r"""
set -euo pipefail
at=0 server=
says() { at=$1; printf 'README.md:%s: %s\n' "$1" "$2" >&3; }
wait_for_port() {
  for _ in $(seq 600); do
    if (: < "/dev/tcp/${1/:/\/}") 2>/dev/null; then return 0; fi
    kill -0 "$server" || return 1
    sleep 0.1
  done
  return 1
}
ended() {
  status=$?
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  [ $status = 0 ] || printf 'README.md:%s: exit status %s\n' "$at" "$status" >&3
}
trap ended EXIT
"""


@dataclass
class Block:
    line: int
    mark: str  # "", "server", or "not run"
    reason: str
    commands: list  # (line, text)


def read_commands(lines, first):
    """Commands of a block, each with its continuation lines; comments alone are none."""
    commands, begun = [], None
    for number, line in enumerate(lines, first):
        begun = (begun[0], begun[1] + "\n" + line) if begun else (number, line)
        if line.endswith("\\"):
            continue
        if begun[1].strip() and not begun[1].lstrip().startswith("#"):
            commands.append(begun)
        begun = None
    return commands


def read_blocks(text):
    lines = text.splitlines()
    blocks, at = [], 0
    while at < len(lines):
        if not lines[at].startswith("```"):
            at += 1
            continue
        end = next(i for i in range(at + 1, len(lines)) if lines[i].startswith("```"))
        if lines[at] == "```sh":
            said = re.fullmatch(r"<!-- (not run|server)(?:: (.+))? -->", lines[at - 1])
            mark, reason = (said[1], said[2] or "") if said else ("", "")
            blocks.append(Block(at + 1, mark, reason, read_commands(lines[at + 1:end], at + 2)))
        at = end + 1
    return blocks


def problems(blocks):
    """What is wrong with the marks."""
    num_not_run = sum(len(b.commands) for b in blocks if b.mark == "not run")
    if not any(b.commands for b in blocks if not b.mark):
        yield "README.md has no command to run"
    if num_not_run > MAX_NOT_RUN:
        yield f"README.md has {num_not_run} commands that are not run, at most {MAX_NOT_RUN}"
    for b in blocks:
        if b.mark == "not run" and not b.reason:
            yield f"README.md:{b.line}: does not say why it is not run"
        if b.mark == "server" and (len(b.commands) != 1 or not PORT.search(b.commands[0][1])):
            yield f"README.md:{b.line}: a server is one command with 127.0.0.1:PORT"


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def write_script(blocks):
    """(the script, the number of commands in it)"""
    parts, servers, count = [PROLOGUE], 0, 0
    for block in blocks:
        if block.mark == "not run":
            continue
        for line, text in block.commands:
            parts.append(f"says {line} {quoted(text)}")
            count += 1
            if block.mark == "server":
                bare = re.sub(r"\s#\s.*", "", text)
                parts.append(f"{bare} &\nserver=$!\nwait_for_port 127.0.0.1:{PORT.search(text)[0]}")
                servers += 1
            else:
                parts.append(text)
    if servers:
        parts.append('kill "$server"; ended_server=$server server=; wait "$ended_server"')
    return "\n".join(parts) + "\n", count


def with_free_ports(text):
    """Each port of the README becomes one that is free, the same one everywhere."""
    ports, sockets = {}, []
    for port in dict.fromkeys(PORT.findall(text)):
        sockets.append(socket.create_server(("127.0.0.1", 0)))
        ports[port] = str(sockets[-1].getsockname()[1])
    for s in sockets:
        s.close()
    return PORT.sub(lambda m: ports[m[0]], text)


def copy_tree(target):
    for name in files_by_git(ROOT) or files_by_walk(ROOT):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def run(script, scratch):
    """Runs the script in a copy of the tree; the exit status, with the commands as they come."""
    tree, home = scratch / "quire", scratch / "home"
    home.mkdir()
    copy_tree(tree)
    (scratch / "script").write_text(script)
    read_end, write_end = os.pipe()
    # The shell says what it runs on descriptor 3. timeout ends all that the shell has started.
    with open(scratch / "log", "wb") as log:
        shell = subprocess.Popen(["timeout", str(TIME_LIMIT_S), "bash", "-c",
                                  f"exec 3>&{write_end} {write_end}>&-; . \"$0\"",
                                  str(scratch / "script")], cwd=tree, stdin=subprocess.DEVNULL,
                                 env=os.environ | {"HOME": str(home)}, stdout=log, stderr=log,
                                 pass_fds=[write_end])
    os.close(write_end)
    with open(read_end) as said:
        for line in said:
            print(line, end="", flush=True)
    return shell.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--list", action="store_true", help="print the commands, run none")
    args = parser.parse_args()
    blocks = read_blocks((ROOT / "README.md").read_text())
    wrong = list(problems(blocks))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    not_run = [(line, text, b.reason) for b in blocks if b.mark == "not run"
               for line, text in b.commands]
    for line, text, reason in not_run:
        print(f"README.md:{line}: not run: {text} ({reason})")
    script, count = write_script(blocks)
    if args.list or wrong:
        print(*(text for b in blocks if b.mark != "not run" for _, text in b.commands), sep="\n")
        return 1 if wrong else 0
    with tempfile.TemporaryDirectory() as folder:
        status = run(with_free_ports(script), Path(folder))
        if status != 0:
            print((Path(folder) / "log").read_text(errors="replace")[-4000:])
    said = "all ended as they should" if status == 0 else f"FAILED, exit status {status}"
    print(f"readme commands: {count} run, {len(not_run)} not run: {said}")
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
