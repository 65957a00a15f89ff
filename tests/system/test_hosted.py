"""Clients of the hosted service on a real machine: two variables are changed and nothing else. The fakes see every variant
in tests/component/test-http-hosted.c."""
import json
import unittest
import urllib.error
import urllib.parse
import urllib.request

from paddock import SystemTest

OCTETS = "application/octet-stream"


class HostedClient:
    """What such a client is: a base URL, a key, and paths that it appends."""

    def __init__(self, base, append, headers):
        self.base, self.append, self.headers = base, append, headers

    def call(self, method, path, body=None, raw=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            raw = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(f"{self.base}{self.append}{path}", data=raw, method=method,
                                         headers={**self.headers, **headers})
        try:
            with urllib.request.urlopen(request, timeout=180) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def json(self, *args, expect=(200,), **kwargs):
        status, answer = self.call(*args, **kwargs)
        if status not in expect:
            raise AssertionError(f"{args}: {status}: {answer[:400]!r}")
        return json.loads(answer)


class Hosted(SystemTest):
    # The size that such clients name, as small as this test can have it.
    config = "small = 1/256/2\n"

    def variants(self):
        origin = f"http://127.0.0.1:{self.daemon.port}"
        bearer = {"Authorization": f"Bearer {self.client.key}"}
        for base, append, headers in (
                (origin, "/v1", bearer),
                (origin + "/v1", "", {"x-api-key": self.client.key}),
                (origin, "", bearer),
                (origin + "/v1", "/v1", {"X-API-Key": self.client.key}),
                (origin + "/", "/v1", {**bearer, "x-api-key": self.client.key}),
                (origin + "/v1/", "", bearer)):
            yield HostedClient(base, append, headers)

    def check_record(self, record):
        for field in ("id", "status", "size", "created_at", "expires_at"):
            self.assertTrue(record[field], record)

    def check_exec(self, client, sandbox):
        ran = client.json("POST", f"/sandboxes/{sandbox}/exec", {
            "command": "pwd; echo $A; echo oh >&2; exit 7", "cwd": "/tmp", "env": {"A": "b"}, "timeout_ms": 600000})
        self.assertTrue(ran["id"])
        self.assertEqual((ran["stdout"], ran["stderr"], ran["exit_code"], ran["truncated"]),
                         ("/tmp\nb\n", "oh\n", 7, False))
        self.assertGreaterEqual(ran["duration_ms"], 0)
        ran = client.json("POST", f"/sandboxes/{sandbox}/exec", {"command": "sleep 60", "timeout_ms": 1000})
        self.assertNotEqual(ran["exit_code"], 0)

    def check_files(self, client, sandbox, place):
        files = f"/sandboxes/{sandbox}/files"
        path = f"/workspace/{place}/raw file"
        query = urllib.parse.urlencode({"path": path})
        client.json("PUT", f"{files}?{query}", raw=b"\x00\xff raw", Content_Type=OCTETS)
        self.assertEqual(client.call("GET", f"{files}?{query}", Accept=OCTETS), (200, b"\x00\xff raw"))
        self.assertEqual(client.call("GET", files, Accept=OCTETS, X_File_Path=path), (200, b"\x00\xff raw"))
        client.json("PUT", files, raw=b"two", Content_Type=OCTETS, X_File_Path=f"/workspace/{place}/two")
        client.json("PUT", files, {"path": f"/workspace/{place}/deep/text", "content": "grün"})
        client.json("PUT", files, {"path": f"/workspace/{place}/bytes", "content_base64": "AP8="})
        self.assertEqual(client.json("GET", f"{files}?path=/workspace/{place}/deep/text")["content"], "grün")
        self.assertEqual(client.json("GET", f"{files}?path=/workspace/{place}/bytes")["content_base64"], "AP8=")
        for recursive, names in (("false", ["bytes", "deep", "raw file", "two"]),
                                 ("true", ["bytes", "deep", "raw file", "text", "two"])):
            listed = client.json("GET", f"{files}?path=/workspace/{place}&list=true&recursive={recursive}")
            self.assertEqual(sorted(entry["name"] for entry in listed["entries"]), names)

    def test_every_variant_works_on_one_machine(self):
        clients = list(self.variants())
        record = clients[0].json("POST", "/sandboxes", {"size": "small", "timeout_minutes": 15}, expect=(200, 201))
        self.check_record(record)
        sandbox = record["id"]
        for number, client in enumerate(clients):
            with self.subTest(base=client.base, append=client.append):
                self.assertIn(sandbox, [one["id"] for one in client.json("GET", "/sandboxes?limit=100")["data"]])
                self.check_record(client.json("GET", f"/sandboxes/{sandbox}"))
                self.check_exec(client, sandbox)
                self.check_files(client, sandbox, f"variant{number}")
                extended = client.json("POST", f"/sandboxes/{sandbox}/extend", {"minutes": 1})
                self.assertGreater(extended["expires_at"], record["expires_at"])
                missing = client.json("GET", "/sandboxes/nobody", expect=(404,))
                self.assertEqual(missing["error"]["type"], "not_found")
        for client in clients[:2]:
            self.assertEqual(client.json("DELETE", f"/sandboxes/{sandbox}")["status"], "deleted")
        self.assertTrue(self.daemon.is_gone(sandbox))


if __name__ == "__main__":
    unittest.main()
