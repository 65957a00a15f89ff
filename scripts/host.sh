# Shared by quickstart and tests/run: packages, and the /dev/kvm trap. To be sourced; needs bash.

# Names in a package list, comments stripped.
packages_in() {
    sed -e 's/#.*//' -e 's/[[:space:]]//g' "$@" | grep .
}

# Installs what is missing of the lists. apt is only touched where something is.
install_packages() {
    local missing=() name
    for name in $(packages_in "$@"); do
        dpkg-query -W -f '${Status}\n' "$name" 2>/dev/null | grep -q '^install ok installed' ||
            missing+=("$name")
    done
    [ "${#missing[@]}" -eq 0 ] && return 0
    echo "installing ${#missing[@]} packages: ${missing[*]}"
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
        --no-install-recommends "${missing[@]}"
}

# QEMU's group. Debian's udev makes it; a machine without udev has none.
make_kvm_group() {
    getent group kvm >/dev/null && return 1
    groupadd --system kvm
}

# libvirt probes QEMU anew on each call, 4 s each, where root can open /dev/kvm and QEMU's group can't. Who
# changes it notes the former state and its own claim here, and the last one to leave puts it back.
KVM_CLAIMS=${KVM_CLAIMS:-/run/paddock/kvm}

kvm_needs_group() {
    [ -c /dev/kvm ] && [ "$(stat -c '%G %a' /dev/kvm)" != "kvm 660" ] &&
        [ "$(stat -c '%a' /dev/kvm)" != 666 ]
}

# kvm_claim NAME: true when something was changed.
kvm_claim() {
    if [ -e "$KVM_CLAIMS/was" ]; then
        touch "$KVM_CLAIMS/by-$1"
        return 1
    fi
    kvm_needs_group || return 1
    mkdir -p "$KVM_CLAIMS"
    stat -c '%u:%g %a' /dev/kvm >"$KVM_CLAIMS/was"
    touch "$KVM_CLAIMS/by-$1"
    chgrp kvm /dev/kvm && chmod 660 /dev/kvm
}

# kvm_release NAME: true when the former state was put back.
kvm_release() {
    local owner mode
    [ -e "$KVM_CLAIMS/by-$1" ] || return 1
    rm -f "$KVM_CLAIMS/by-$1"
    compgen -G "$KVM_CLAIMS/by-*" >/dev/null && return 1
    read -r owner mode <"$KVM_CLAIMS/was"
    rm -rf "$KVM_CLAIMS"
    [ "$(stat -c '%G %a' /dev/kvm)" = "kvm 660" ] || return 1
    chown "$owner" /dev/kvm && chmod "$mode" /dev/kvm
}
