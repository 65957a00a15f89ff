"""QEMU's real user-mode network without a guest: the test itself is the network card.

A QEMU with no machine runs as a sandbox's uid; its `user` backend is joined by a hub to a datagram socket on which the
test sends and takes Ethernet frames. So what libslirp makes of the host filter's answers can be seen in
milliseconds, with no kernel to boot.

    with Slirp(net, uid, resolv_conf) as guest:
        guest.tcp("10.0.2.2", 80)       # ("reached", ms), ("refused", ms), ("unreachable", ms), ("silent", ms)
"""
import ipaddress
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import time

import lib_netns

MAC = bytes.fromhex("525400123456")
GUEST4, GUEST6 = ipaddress.ip_address("10.0.2.15"), ipaddress.ip_address("fec0::15")
GATEWAY4, GATEWAY6 = "10.0.2.2", "fec0::2"
DNS4 = "10.0.2.3"
TCP, UDP, ICMP, ICMP6 = 6, 17, 1, 58
FIN, SYN, RST, ACK = 1, 2, 4, 16


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def with_checksum(source, target, protocol, payload, offset):
    """`payload` with the transport checksum, which covers the addresses, at `offset`."""
    pseudo = source.packed + target.packed + struct.pack(">IxxxB", len(payload), protocol)
    if source.version == 4:
        pseudo = source.packed + target.packed + struct.pack(">xBH", protocol, len(payload))
    value = checksum(pseudo + payload)
    return payload[:offset] + struct.pack(">H", value) + payload[offset + 2:]


class Slirp:
    def __init__(self, net, uid, resolv_conf):
        self.folder = tempfile.TemporaryDirectory(dir="/var/tmp")
        base = pathlib.Path(self.folder.name)
        base.chmod(0o777)
        self.mac = b"\xff" * 6  # of the gateway, once it is known
        self.port = 40000
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(base / "test"))
        os.chmod(base / "test", 0o777)
        command = ["qemu-system-x86_64", "-machine", "none", "-nodefaults", "-display", "none",
                   "-netdev", "user,id=user",
                   "-netdev", f"dgram,id=test,local.type=unix,local.path={base / 'qemu'},"
                              f"remote.type=unix,remote.path={base / 'test'}",
                   "-netdev", "hubport,id=one,hubid=1,netdev=user",
                   "-netdev", "hubport,id=two,hubid=1,netdev=test"]
        # `ip netns exec` has made a mount namespace, so the host doesn't see this resolv.conf.
        shell = 'mount --bind "$1" /etc/resolv.conf; u=$2; shift 2; ' \
                'exec setpriv --reuid "$u" --regid "$u" --clear-groups "$@"'
        self.log = open(base / "log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            net.host_command(["sh", "-ec", shell, "sh", str(resolv_conf), str(uid)] + command),
            stdout=self.log, stderr=self.log)
        end = time.monotonic() + 30
        while not (base / "qemu").exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                text = self.log.read()
                self.close()
                raise RuntimeError(f"QEMU doesn't start: {text}")
            time.sleep(0.02)
        self.sock.connect(str(base / "qemu"))
        self.sock.settimeout(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.sock.close()
        self.folder.cleanup()

    # ---- frames ----

    def send_frame(self, kind, payload):
        self.sock.send((self.mac + MAC + struct.pack(">H", kind) + payload).ljust(60, b"\0"))

    def send_ip(self, target, protocol, payload):
        if target.version == 4:
            head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0)
            addresses = GUEST4.packed + target.packed
            head = head[:10] + struct.pack(">H", checksum(head + addresses)) + addresses
            self.send_frame(0x0800, head + payload)
        else:
            # Neighbour discovery wants a hop limit of 255.
            head = struct.pack(">IHBB", 6 << 28, len(payload), protocol, 255)
            self.send_frame(0x86dd, head + GUEST6.packed + target.packed + payload)

    def answer_arp(self, packet):
        if packet[6:8] == b"\0\1" and packet[24:28] == GUEST4.packed:
            self.send_frame(0x0806, packet[:6] + b"\0\2" + MAC + GUEST4.packed + packet[8:18])

    def answer_solicitation(self, source, icmp):
        body = struct.pack(">BBHI", 136, 0, 0, 0x60000000) + GUEST6.packed + b"\2\1" + MAC
        if icmp[0] == 135 and icmp[8:24] == GUEST6.packed:
            self.send_ip(source, ICMP6, with_checksum(GUEST6, source, ICMP6, body, 2))

    def packets(self, seconds):
        """(protocol, payload) of what arrives, until the time is over. Answers ARP and the like."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                frame = self.sock.recv(65536)
            except TimeoutError:
                continue
            kind, packet = struct.unpack(">H", frame[12:14])[0], frame[14:]
            if kind == 0x0806:
                self.answer_arp(packet)
            elif kind == 0x0800:
                self.mac = frame[6:12]
                length, size = struct.unpack(">H", packet[2:4])[0], (packet[0] & 15) * 4
                yield packet[9], packet[size:length]
            elif kind == 0x86dd:
                self.mac = frame[6:12]
                length = struct.unpack(">H", packet[4:6])[0]
                payload = packet[40:40 + length]
                if packet[6] == ICMP6 and payload[0] >= 133:
                    self.answer_solicitation(ipaddress.ip_address(packet[8:24]), payload)
                else:
                    yield packet[6], payload

    # ---- what a program in the guest would see ----

    @staticmethod
    def is_unreachable(protocol, payload):
        return (protocol, payload[0]) in ((ICMP, 3), (ICMP6, 1))

    def send_segment(self, target, port, flags, seq, ack):
        segment = struct.pack(">HHIIBBHHH", self.port, port, seq, ack, 0x50, flags, 65535, 0, 0)
        source = GUEST4 if target.version == 4 else GUEST6
        self.send_ip(target, TCP, with_checksum(source, target, TCP, segment, 16))

    def tcp(self, address, port, seconds=3):
        """Connects and waits for the listener's banner."""
        target, start = ipaddress.ip_address(address), time.monotonic()
        self.port += 1
        self.send_segment(target, port, SYN, 1000, 0)
        outcome = "silent"
        for protocol, payload in self.packets(seconds):
            if self.is_unreachable(protocol, payload):
                outcome = "unreachable"
                break
            if protocol != TCP or payload[:4] != struct.pack(">HH", port, self.port):
                continue
            seq, flags = struct.unpack(">I", payload[4:8])[0], payload[13]
            data = payload[(payload[12] >> 4) * 4:]
            if flags & RST:
                outcome = "refused"
                break
            if flags & SYN:
                self.send_segment(target, port, ACK, 1001, seq + 1)
            if data:
                outcome = "reached" if data == lib_netns.BANNER else "strange"
                self.send_segment(target, port, RST | ACK, 1001, seq + len(data))
                break
        return outcome, int((time.monotonic() - start) * 1000)

    def udp(self, address, port, seconds=3):
        """Sends a datagram and waits for the banner."""
        target, start = ipaddress.ip_address(address), time.monotonic()
        self.port += 1
        source = GUEST4 if target.version == 4 else GUEST6
        datagram = struct.pack(">HHHH", self.port, port, 9, 0) + b"?"
        self.send_ip(target, UDP, with_checksum(source, target, UDP, datagram, 6))
        outcome = "silent"
        for protocol, payload in self.packets(seconds):
            if self.is_unreachable(protocol, payload):
                outcome = "unreachable"
                break
            if protocol == UDP and payload[:4] == struct.pack(">HH", port, self.port):
                outcome = "reached" if payload[8:] == lib_netns.BANNER else "strange"
                break
        return outcome, int((time.monotonic() - start) * 1000)
