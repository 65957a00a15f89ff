"""A file system that answers when it likes: one flat directory, served by a thread over /dev/fuse."""

import ctypes
import errno
import os
import stat
import struct
import threading
import time

(LOOKUP, FORGET, GETATTR, SETATTR, UNLINK, RENAME, OPEN, READ, WRITE, STATFS, RELEASE, FLUSH, INIT, OPENDIR,
 READDIR, RELEASEDIR, CREATE, INTERRUPT, BATCH_FORGET, RENAME2) = (
    1, 2, 3, 4, 10, 12, 14, 15, 16, 17, 18, 25, 26, 27, 28, 29, 35, 36, 42, 45)
MNT_FORCE, MNT_DETACH = 1, 2

libc = ctypes.CDLL(None, use_errno=True)


class Fuse:
    def __init__(self, path, uid):
        self.path, self.uid = str(path), uid
        self.files = {}      # name: contents
        self.ids = [None]    # the name of node 2 and up, by its number less 1
        self.errors = {}     # operation: errno
        self.silent = set()  # operations that get no answer, or pairs of one and a file's name
        self.delays = {}     # operation: seconds
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.fd},rootmode=40000,user_id={uid},group_id={uid},allow_other"
        if libc.mount(b"paddock-test", self.path.encode(), b"fuse", 6, options.encode()):
            raise OSError(ctypes.get_errno(), "can't mount")
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def close(self):
        """Whoever still waits for an answer gets an error."""
        libc.umount2(self.path.encode(), MNT_FORCE)
        libc.umount2(self.path.encode(), MNT_DETACH)
        self.thread.join(20)
        os.close(self.fd)

    def serve(self):
        while True:
            try:
                data = os.read(self.fd, 1 << 21)
            except OSError as e:
                if e.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            _, kind, unique, node = struct.unpack_from("<IIQQ", data)
            if kind in (FORGET, BATCH_FORGET, INTERRUPT) or self.is_silent(kind, node):
                continue
            time.sleep(self.delays.get(kind, 0))
            try:
                if kind in self.errors:
                    raise OSError(self.errors[kind], "")
                code, out = 0, self.answer(kind, node, data[40:])
            except OSError as e:
                code, out = -e.errno, b""
            try:
                os.write(self.fd, struct.pack("<IiQ", 16 + len(out), code, unique) + out)
            except OSError:
                pass  # whoever asked has gone

    def is_silent(self, kind, node):
        return kind in self.silent or (kind, self.ids[node - 1]) in self.silent

    def attr(self, name):
        mode, size = ((stat.S_IFDIR | 0o755, 0) if name is None else
                      (stat.S_IFREG | 0o644, len(self.files[name])))
        return struct.pack("<6Q10I", 1, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, self.uid, self.uid, 0, 4096, 0)

    def entry(self, name):
        if name not in self.files:
            raise OSError(errno.ENOENT, "")
        if name not in self.ids:
            self.ids.append(name)
        return struct.pack("<4QII", self.ids.index(name) + 1, 0, 0, 0, 0, 0) + self.attr(name)

    def name(self, node):
        name = self.ids[node - 1]
        if name is not None and name not in self.files:
            raise OSError(errno.ENOENT, "")
        return name

    def answer(self, kind, node, data):
        if kind == INIT:
            return struct.pack("<4I2H2I2HI7I", 7, 31, 65536, 0, 0, 0, 131072, 1, 0, 0, 0, *[0] * 7)
        if kind == LOOKUP:
            return self.entry(data[:-1])
        if kind in (GETATTR, SETATTR):
            name = self.name(node)
            if kind == SETATTR:
                valid, _, _, size = struct.unpack_from("<IIQQ", data)
                if valid & 8:
                    self.files[name] = self.files[name][:size].ljust(size, b"\0")
            return bytes(16) + self.attr(name)
        if kind in (OPEN, OPENDIR):
            return bytes(16)
        if kind == READ:
            _, offset, size = struct.unpack_from("<QQI", data)
            return self.files[self.name(node)][offset:offset + size]
        if kind == WRITE:
            _, offset, size = struct.unpack_from("<QQI", data)
            name = self.name(node)
            old = self.files[name].ljust(offset, b"\0")
            self.files[name] = old[:offset] + data[40:40 + size] + old[offset + size:]
            return struct.pack("<II", size, 0)
        if kind == CREATE:
            name = data[16:].split(b"\0")[0]
            self.files[name] = b""
            return self.entry(name) + bytes(16)
        if kind == UNLINK:
            self.files.pop(data[:-1], None)
            return b""
        if kind in (RENAME, RENAME2):
            old, new = data[8 if kind == RENAME else 16:].split(b"\0")[:2]
            self.files[new] = self.files.pop(old)
            if new in self.ids:
                self.ids[self.ids.index(new)] = b"replaced"
            self.ids[self.ids.index(old)] = new
            return b""
        if kind == READDIR:
            _, offset, _ = struct.unpack_from("<QQI", data)
            out = b""
            for i, name in list(enumerate(sorted(self.files)))[offset:offset + 20]:
                out += struct.pack("<QQII", i + 2, i + 1, len(name), 8) + name + bytes(-len(name) % 8)
            return out
        if kind == STATFS:
            return bytes(80)
        if kind in (RELEASE, RELEASEDIR, FLUSH):
            return b""
        raise OSError(errno.ENOSYS, "")
