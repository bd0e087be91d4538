#!/usr/bin/env python3
"""The object store tier and a real S3 server, PyPI's moto.

    test_moto.py OBJECT_LIFE    runs the program object_life against moto_server; boto3 looks at the objects

moto is found in the interpreter that QUIRE_MOTO_PYTHON names, or in build/moto/venv, where ./test installs
it; without it the test is skipped (77). The server checks signatures and permissions: a request with a wrong
signature is refused with 403.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HEADER = 128


def find_python():
    for name in (os.environ.get("QUIRE_MOTO_PYTHON"), ROOT / "build/moto/venv/bin/python"):
        if name and Path(name).exists():
            found = subprocess.run([name, "-c", "import moto.server, boto3"], capture_output=True)
            if found.returncode == 0:
                return str(name)
    return None


class Server:
    """moto_server at a port that it takes itself: no other program can have taken it in between."""

    def __init__(self, folder, *arguments):
        program = Path(sys.executable).parent / "moto_server"
        said = Path(folder) / "moto_server.log"
        with said.open("w") as log:
            self.process = subprocess.Popen([program, "-H", "127.0.0.1", "-p", "0", *arguments], cwd=folder,
                                            stdout=log, stderr=log)
        for _ in range(600):
            found = re.search(r"Running on (https?://127\.0\.0\.1:\d+)", said.read_text())
            if found:
                self.url = found.group(1)
                return
            assert self.process.poll() is None, f"moto_server ended: {said.read_text()}"
            time.sleep(0.1)
        self.close()
        raise AssertionError(f"moto_server does not say where it listens: {said.read_text()}")

    def close(self):
        self.process.terminate()
        self.process.wait()


def client(service, url, key="testing", secret="testing", **more):
    import boto3
    return boto3.client(service, endpoint_url=url, region_name="us-east-1", aws_access_key_id=key,
                        aws_secret_access_key=secret, **more)


def life(program, url, bucket, op, first, num, key, secret, ca_file=None):
    """The statuses of one operation, and what was logged."""
    environment = dict(os.environ, AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret)
    words = [program, url, bucket, op, str(first), str(num), *([ca_file] if ca_file else [])]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}, done.stdout


def make_user(url, bucket):
    """A user with just the permissions of docs/tiers-object.md; from then on moto checks requests."""
    iam = client("iam", url)
    iam.create_user(UserName="quire")
    keys = iam.create_access_key(UserName="quire")["AccessKey"]
    policy = {"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [f"arn:aws:s3:::{bucket}"]},
        {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
         "Resource": [f"arn:aws:s3:::{bucket}/*"]}]}
    iam.put_user_policy(UserName="quire", PolicyName="quire", PolicyDocument=json.dumps(policy))
    return keys["AccessKeyId"], keys["SecretAccessKey"]


def set_unchecked(url, count):
    plain = {"Content-Type": "text/plain"}  # moto does not find a number in a form
    request = urllib.request.Request(f"{url}/moto-api/reset-auth", data=str(count).encode(), headers=plain,
                                     method="POST")
    urllib.request.urlopen(request).read()


def test_protocol(program, folder):
    server = Server(folder)
    try:
        bucket = "quire-test"
        s3 = client("s3", server.url)
        s3.create_bucket(Bucket=bucket)
        key, secret = make_user(server.url, bucket)
        set_unchecked(server.url, 0)
        mine = client("s3", server.url, key, secret)
        assert life(program, server.url, bucket, "all", 0, 0, key, secret)[0] == {"DONE": 20}

        names = [o["Key"] for o in mine.list_objects_v2(Bucket=bucket)["Contents"]]
        assert len(names) == 20, names
        assert all(n.startswith("quire/1/5a5a") and n.endswith(f"-{i % 3}-0") for i, n in enumerate(names)), names
        body = mine.get_object(Bucket=bucket, Key=names[0])["Body"].read()
        assert len(body) == HEADER + 10000 and body[:8] == b"QUIREKV1"

        # What others change is found out, and deleted.
        damaged = bytearray(body)
        damaged[5000] ^= 1
        other = mine.get_object(Bucket=bucket, Key=names[1])["Body"].read()
        for name, bytes_ in zip(names, (bytes(damaged), body[:-1], b"", other)):
            mine.put_object(Bucket=bucket, Key=name, Body=bytes_)
        assert life(program, server.url, bucket, "load", 0, 20, key, secret)[0] == {"DONE": 16, "WRONG": 4}
        assert life(program, server.url, bucket, "load", 0, 20, key, secret)[0] == {"DONE": 16, "MISSING": 4}
        assert life(program, server.url, bucket, "store", 0, 20, key, secret)[0] == {"DONE": 20}
        assert life(program, server.url, bucket, "load", 0, 20, key, secret)[0] == {"DONE": 20}

        # A wrong secret: moto finds the signature wrong.
        statuses, said = life(program, server.url, bucket, "load", 0, 20, key, secret[::-1])
        assert statuses == {"FAILED": 20} and "403 SignatureDoesNotMatch" in said, said
        statuses, said = life(program, server.url, "other-bucket", "store", 0, 20, key, secret)
        assert statuses == {"FAILED": 20}, said
    finally:
        server.close()


def test_tls(program, folder):
    openssl = shutil.which("openssl")
    if not openssl:
        return
    subprocess.run([openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=quire test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                    f"{folder}/server.key", "-out", f"{folder}/server.crt"], check=True, capture_output=True)
    ca_file = f"{folder}/server.crt"
    server = Server(folder, "-c", ca_file, "-k", f"{folder}/server.key")
    try:
        client("s3", server.url, verify=ca_file).create_bucket(Bucket="quire-test")
        assert life(program, server.url, "quire-test", "all", 0, 0, "a", "b", ca_file)[0] == {"DONE": 20}
    finally:
        server.close()


def main():
    program = str(Path(sys.argv[1]).resolve())
    python = find_python()
    if python is None:
        print("skipped: there is no moto; ./test installs it")
        return 77
    if Path(python).absolute() != Path(sys.executable).absolute():
        return subprocess.run([python, __file__, program]).returncode
    with tempfile.TemporaryDirectory() as folder:
        test_protocol(program, folder)
        test_tls(program, folder)
    print("the tier and moto agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
