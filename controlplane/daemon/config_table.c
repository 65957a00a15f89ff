#include "daemon/config_table.h"

#include "api/api.h"
#include "base/macros.h"
#include "daemon/config.h"

#define AT(member) offsetof(struct config, member)

static const char *const accelerations[] = {"auto", "kvm", "tcg", NULL};
static const char *const log_levels[] = {"error", "warning", "info", "debug", NULL};
static const char *const networks[] = {"egress", "none", NULL};

const struct config_row config_rows[] = {
	{"server", "listen", CONFIG_STRING, AT(listen), "127.0.0.1:8470", 0, 0, NULL,
		"Address and port of the API. Addresses beyond loopback need allow_insecure.",
		config_check_listen},
	{"server", "allowed_hosts", CONFIG_LIST, AT(allowed_hosts), "", 0, 0, NULL,
		"Names that clients may use in the Host header, besides localhost, 127.0.0.1 and "
		"[::1].",
		config_check_host},
	{"server", "allowed_origins", CONFIG_LIST, AT(allowed_origins), "", 0, 0, NULL,
		"Origins of web pages that may call the API. A request with any other Origin is "
		"refused.",
		config_check_origin},
	{"server", "allow_insecure", CONFIG_BOOL, AT(allow_insecure), "no", 0, 0, NULL,
		"Allows plain HTTP on an address that other machines reach: keys then cross the "
		"network in clear."},
	{"server", "admin_socket", CONFIG_STRING, AT(admin_socket), "", 0, 0, NULL,
		"Unix socket for administration; root and the daemon's own user may connect. "
		"Empty: admin.sock in state.dir.",
		config_check_optional_path},

	{"state", "dir", CONFIG_STRING, AT(state_dir), "/var/lib/paddock", 0, 0, NULL,
		"Database, keys and disks. QEMU's users must be able to traverse it. One daemon at "
		"a time.",
		config_check_path},
	{"state", "run_dir", CONFIG_STRING, AT(run_dir), "", 0, 0, NULL,
		"Sockets. Keep it short: Unix socket paths end at 107 bytes. Empty: run in "
		"state.dir.",
		config_check_optional_path},
	{"state", "images", CONFIG_STRING, AT(images_dir), "/var/lib/paddock/images", 0, 0, NULL,
		"Images as images/build makes them.", config_check_path},

	{"hypervisor", "uri", CONFIG_STRING, AT(uri), "qemu:///system", 0, 0, NULL,
		"libvirt's qemu:///system, or embed: the driver runs inside paddockd, with its "
		"root in state.dir.",
		config_check_uri},
	{"hypervisor", "acceleration", CONFIG_ENUM, AT(acceleration), "auto", 0, 0, accelerations,
		"auto takes KVM where the processor and /dev/kvm have it, else TCG (software, "
		"slow)."},
	{"hypervisor", "group", CONFIG_STRING, AT(group), "kvm", 0, 0, NULL,
		"Group that QEMU runs with; it must be the one that may open /dev/kvm and own no "
		"file of Paddock's.",
		config_check_group},
	{"hypervisor", "workers", CONFIG_INT, AT(workers), "0", 0, 64, NULL,
		"Threads for calls to libvirt. 0: one for each core, four at most; more makes it "
		"slower."},

	{"image", "default", CONFIG_STRING, AT(default_image), "default", 0, 0, NULL,
		"Image of a sandbox that names none.", config_check_name},

	{"limits", "sandboxes", CONFIG_INT, AT(sandboxes), "20", 1, 100000, NULL,
		"Sandboxes that an account may have at a time."},
	{"limits", "vcpus", CONFIG_INT, AT(vcpus), "64", 1, 100000, NULL,
		"Virtual processors that an account may use at a time."},
	{"limits", "memory_mb", CONFIG_INT, AT(memory_mb), "131072", 128, 1000000000, NULL,
		"Memory in MiB that an account may use at a time."},
	{"limits", "disk_gb", CONFIG_INT, AT(disk_gb), "2000", 1, 10000000, NULL,
		"Disk in GB that an account may use at a time; disks are thin."},
	{"limits", "max_lifetime", CONFIG_INT, AT(max_lifetime_minutes), "1440", 1, 525600, NULL,
		"Minutes from now beyond which no expiry may lie."},
	{"limits", "default_timeout", CONFIG_INT, AT(default_timeout_minutes), "15", 1, 1440, NULL,
		"Minutes that a sandbox lives if its creator says nothing."},
	{"limits", "exec_timeout_ms", CONFIG_INT, AT(exec_timeout_ms), "120000", 1, 86400000, NULL,
		"Time that a command has if the caller says nothing."},
	{"limits", "exec_timeout_max_ms", CONFIG_INT, AT(exec_timeout_max_ms), "3600000", 1,
		86400000, NULL, "The longest time that a caller may ask for a command."},
	{"limits", "exec_output_bytes", CONFIG_INT, AT(exec_output_bytes), "2097152", 1024,
		API_EXEC_OUTPUT_MAX_BYTES, NULL,
		"Bytes kept of a command's two outputs together if the caller says nothing."},
	{"limits", "exec_output_max_bytes", CONFIG_INT, AT(exec_output_max_bytes), "16777216", 1024,
		API_EXEC_OUTPUT_MAX_BYTES, NULL,
		"The most that a caller may ask to be kept. The commands of a sandbox together "
		"hold twice as much of the daemon's memory, or eight times exec_output_bytes if "
		"that is more."},
	{"limits", "body_bytes", CONFIG_INT, AT(body_bytes), "16777216", 65536, 16777216, NULL,
		"Largest JSON body, and largest file in a JSON answer."},
	{"limits", "upload_bytes", CONFIG_INT, AT(upload_bytes), "0", 0, 1125899906842624, NULL,
		"Largest raw body; the sandbox's disk limits it where this is 0."},
	{"limits", "bodies_total_bytes", CONFIG_INT, AT(bodies_total_bytes), "268435456", 65536,
		17179869184, NULL,
		"Request bodies and unsent JSON answers held at one time, all together, in bytes."},
	{"limits", "memory_overcommit_percent", CONFIG_INT, AT(memory_overcommit_percent), "100",
		10, 1000, NULL,
		"Share of the host's memory that sandboxes with their overhead may be promised, in "
		"percent."},
	{"limits", "boot_timeout", CONFIG_INT, AT(boot_timeout_seconds), "120", 5, 3600, NULL,
		"Seconds that a guest has from power-on to its agent's first word."},
	{"limits", "stray_grace", CONFIG_INT, AT(stray_grace_seconds), "60", 1, 86400, NULL,
		"Seconds before something without a live record counts as a stray and is removed."},

	{"network", "default", CONFIG_ENUM, AT(default_network), "egress", 0, 0, networks,
		"Network of a sandbox that asks for none in particular. egress needs the host "
		"filter; without it none is used."},
	{"network", "allow_private", CONFIG_LIST, AT(allow_private), "", 0, 0, NULL,
		"CIDR:port of private services (mirrors, proxies) that every sandbox may reach.",
		config_check_private},
	{"network", "uid_first", CONFIG_STRING, AT(uid_first), "auto", 0, 0, NULL,
		"First of the user ids that sandboxes run as. auto: a range that no other instance "
		"on this host has.",
		config_check_uid},
	{"network", "uid_count", CONFIG_INT, AT(uid_count), "1000", 1, 65536, NULL,
		"Number of those ids, and so the most sandboxes that can exist at a time."},

	{"guest", "env", CONFIG_LINES, AT(guest_env), "", 0, 0, NULL,
		"NAME=VALUE for every command in every sandbox, for example HTTP_PROXY or "
		"PIP_INDEX_URL. Tenants can read it. Repeat the key for more.",
		config_check_env},
	{"guest", "ca_file", CONFIG_STRING, AT(guest_ca_file), "", 0, 0, NULL,
		"PEM file with certificate authorities that every sandbox trusts.",
		config_check_optional_path},

	{"records", "keep_days", CONFIG_INT, AT(records_keep_days), "30", 1, 36500, NULL,
		"Days that the record of a sandbox that ended is kept, with its reason, its last "
		"results and its Idempotency-Key."},
	{"records", "keep_count", CONFIG_INT, AT(records_keep_count), "5000", 1, 1000000, NULL,
		"Most such records of an account; beyond it the oldest go before their time."},
	{"records", "results", CONFIG_INT, AT(records_results), "5", 0, 64, NULL,
		"Last foreground commands of each sandbox that are kept on record, with their "
		"first 256 "
		"bytes, exit code and last output. 0: none. Of background commands the last 32 "
		"are, "
		"whatever this says, but with 0 without their output."},
	{"records", "result_bytes", CONFIG_INT, AT(records_result_bytes), "1024", 0, 65536, NULL,
		"Last bytes kept of each of such a command's two outputs, and of both together of "
		"a "
		"background one's. 0: none, only how it ended."},

	{"log", "level", CONFIG_ENUM, AT(log_level), "info", 0, 0, log_levels,
		"The least serious lines that are written."},
};
const size_t config_row_count = ARRAY_SIZE(config_rows);

const struct config_size_preset config_size_presets[] = {
	{"small", "2/4096/40"},
	{"medium", "4/8192/80"},
	{"large", "8/16384/160"},
};
const size_t config_size_preset_count = ARRAY_SIZE(config_size_presets);
