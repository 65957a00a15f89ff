#include "daemon/daemon.h"

#include <grp.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "agent/guest_agent.h"
#include "auth/auth.h"
#include "auth/quota.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "daemon/config.h"
#include "daemon/config_check.h"
#include "daemon/doctor_job.h"
#include "daemon/state_dir.h"
#include "http/server.h"
#include "hv/hv_libvirt.h"
#include "image/image.h"
#include "loop/loop.h"
#include "loop/worker.h"
#include "netfilter/netfilter.h"
#include "netfilter/uidrange.h"
#include "ops/ops.h"
#include "sandbox/sandbox.h"
#include "store/store.h"

/*
 * Theory of operation. daemon_start() is the boot order, readable as a list; each part is made once
 * those that it borrows exist, and daemon_free() walks back. The listeners open early, so that
 * /readyz can say why it isn't ready; ops refuses creation until the first reconciliation is
 * through.
 */

#define DRAIN_LOOK_MS     50
#define TB_CACHE_MIB      32
#define DEADMAN_MARGIN_MS 30000
#define STOP_PATIENCE_MS  (60 * MS_PER_SECOND) /* of a restart: its stop, on top of its boot */
#define WORKER_GRACE_MS   5000
#define SHUTDOWN_GRACE_MS 10000
#define CA_FILE_MAX       (512 * 1024)

struct daemon {
	const struct config *config;
	struct state_dir *state_dir;
	struct loop *loop;
	struct event *signals[2];
	struct event *drain_timer;
	uint64_t drain_until_ms;
	struct store *store;
	struct worker_pool *files; /* hashing and the doctor */
	struct images *images;
	struct quotas *quotas;
	struct auth *auth;
	struct hv *hv;
	struct guest_driver *guests;
	struct sandboxes *sandboxes;
	struct netfilter *netfilter;
	struct ops *ops;
	struct http_server *http;
	struct uidrange uids;
	struct exceptions exceptions;
	struct ops_size sizes[CONFIG_SIZES_MAX];
	char *ca_pem;
	char *listen_host;
	uint16_t listen_port;
	char *port_file;
	bool is_stopping;
};

struct daemon *daemon_new(const struct config *config)
{
	struct daemon *d = xnew(struct daemon);

	d->config = config;
	return d;
}

/* ---- listening ---- */

static int start_http(struct daemon *d, struct err *err)
{
	const struct http_config config = {
		.body_bytes = (uint64_t)d->config->body_bytes,
		.upload_bytes = (uint64_t)d->config->upload_bytes,
		.bodies_total_bytes = (uint64_t)d->config->bodies_total_bytes,
		.allowed_hosts = d->config->allowed_hosts,
		.allowed_origins = d->config->allowed_origins,
	};
	char port_text[8];
	uint16_t port;

	d->http = http_server_new(d->loop, d->ops, d->auth, &config);
	if (http_server_listen_admin(d->http, d->config->admin_socket, err) != 0) {
		return err_wrap(err, "server.admin_socket");
	}
	if (http_server_listen(d->http, d->listen_host, d->listen_port, &port, err) != 0) {
		return err_wrap(err, "server.listen");
	}
	/* For whoever asked for port 0, and as a sign that it listens. */
	d->port_file = xasprintf("%s/port", d->config->state_dir);
	snprintf(port_text, sizeof port_text, "%u\n", port);
	if (fs_write_atomic(d->port_file, port_text, strlen(port_text), 0644, err) != 0) {
		return -1;
	}
	log_info("listening", "address=%s port=%u", d->listen_host, port);
	return 0;
}

/* ---- the filter ---- */

/* What any client may read; the filter's own words name tools and errors of the host. */
static const char *public_filter_reason(enum filter_state state)
{
	switch (state) {
	case FILTER_ACTIVE:
		return "";
	case FILTER_STARTING:
		return "the host's network filter is being set up";
	case FILTER_BROKEN:
		return "the host's network filter is being put back";
	case FILTER_UNAVAILABLE:
	default:
		return "the host's network filter can't be set up; its operator finds the reason "
		       "with paddockctl doctor";
	}
}

static void on_filter_state(void *arg, enum filter_state state, const char *reason)
{
	struct daemon *d = arg;
	char quoted[320];

	log_line(state == FILTER_ACTIVE ? LOG_LEVEL_INFO : LOG_LEVEL_WARN, "host filter",
		"state=%s reason=%s", filter_state_name(state),
		log_quote(quoted, sizeof quoted, reason, strlen(reason)));
	sandboxes_set_egress(d->sandboxes, state == FILTER_ACTIVE, public_filter_reason(state));
}

static int read_exceptions(struct daemon *d, struct err *err)
{
	struct exceptions_bounds bounds = {.ports = &d->listen_port, .port_count = 1};
	_cleanup_free_ struct ip_prefix *own = exceptions_own_addresses(&bounds.own_count, err);

	if (!own && bounds.own_count > 0) {
		return -1;
	}
	bounds.own = own;
	return exceptions_parse(d->config->allow_private, &bounds, &d->exceptions, err);
}

static int start_filter(struct daemon *d, struct err *err)
{
	const struct netfilter_settings settings = {
		.instance = store_instance(d->store),
		.uid_first = d->uids.first,
		.uid_count = d->uids.count,
		.exceptions = d->exceptions,
	};
	const struct netfilter_hooks hooks = {.on_state = on_filter_state, .arg = d};

	d->netfilter = netfilter_new(d->loop, &settings, &hooks, err);
	return d->netfilter ? 0 : -1;
}

/* ---- the parts ---- */

static struct uidrange_settings uid_settings(const struct daemon *d, uid_t first)
{
	return (struct uidrange_settings){
		.instance = store_instance(d->store),
		.state_dir = d->config->state_dir,
		.first = first,
		.count = (unsigned)d->config->uid_count,
	};
}

static int claim_uids(struct daemon *d, struct err *err)
{
	int64_t first = 0;

	if (config_parse_uid(d->config->uid_first, &first, err) != 0) {
		return err_wrap(err, "network.uid_first");
	}
	const struct uidrange_settings settings = uid_settings(d, (uid_t)first);
	if (uidrange_claim(&settings, &d->uids, err) != 0) {
		return err_wrap(err, "network.uid_first");
	}
	log_info("user ids claimed", "first=%u count=%u", (unsigned)d->uids.first, d->uids.count);
	return 0;
}

static uint64_t host_memory_mb(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / (1024 * 1024);
}

static int make_quota(struct daemon *d, struct err *err)
{
	const struct quota_amounts limits = {
		.sandboxes = (uint64_t)d->config->sandboxes,
		.vcpus = (uint64_t)d->config->vcpus,
		.memory_mb = (uint64_t)d->config->memory_mb,
		.disk_gb = (uint64_t)d->config->disk_gb,
	};
	struct accel_choice choice;

	if (accel_choose((enum hv_accel)d->config->acceleration, NULL, &choice, err) != 0) {
		return err_wrap(err, "hypervisor.acceleration");
	}
	const struct quota_host host = {
		.memory_mb = host_memory_mb(),
		.overcommit_pct = (unsigned)d->config->memory_overcommit_percent,
		.overhead_mb = QUOTA_QEMU_OVERHEAD_MB + (choice.is_kvm ? 0 : TB_CACHE_MIB),
	};
	d->quotas = quotas_new(&limits, &host);
	return 0;
}

struct hv *daemon_make_hypervisor(
	struct loop *loop, const struct config *config, const char *instance, struct err *err)
{
	_cleanup_free_ char *embed = xasprintf("qemu:///embed?root=%s/libvirt", config->state_dir);
	const struct hv_libvirt_config hv_config = {
		.uri = strcmp(config->uri, "embed") == 0 ? embed : config->uri,
		.instance = instance,
		.accel = (enum hv_accel)config->acceleration,
		.workers = (unsigned)config->workers,
		.tb_cache_mib = TB_CACHE_MIB,
		.deadlines = HV_LIBVIRT_DEADLINES,
	};

	_Static_assert((int)HV_ACCEL_AUTO == (int)CONFIG_ACCEL_AUTO &&
			       (int)HV_ACCEL_KVM == (int)CONFIG_ACCEL_KVM &&
			       (int)HV_ACCEL_TCG == (int)CONFIG_ACCEL_TCG,
		"the setting's choices are the hypervisor's");
	return hv_libvirt_new(loop, &hv_config, err);
}

static int make_hypervisor(struct daemon *d, struct err *err)
{
	d->hv = daemon_make_hypervisor(d->loop, d->config, store_instance(d->store), err);
	return d->hv ? 0 : -1;
}

static int find_group(const struct daemon *d, gid_t *ret, struct err *err)
{
	const struct group *group = getgrnam(d->config->group);

	if (!group) {
		return err_set(err, ERR_INVALID, "hypervisor.group: there is no group %s",
			d->config->group);
	}
	if (group->gr_gid == getgid()) {
		return err_set(err, ERR_INVALID,
			"hypervisor.group: %s is paddockd's own group; QEMU must have another",
			d->config->group);
	}
	*ret = group->gr_gid;
	return 0;
}

static int make_sandboxes(struct daemon *d, struct err *err)
{
	struct sandboxes_config config = {
		.state_dir = d->config->state_dir,
		.run_dir = d->config->run_dir,
		.uid_first = d->uids.first,
		.uid_count = d->uids.count,
		.boot_timeout_ms = (uint64_t)d->config->boot_timeout_seconds * MS_PER_SECOND,
		.deadman_margin_ms = DEADMAN_MARGIN_MS,
		.exec_output_cap = (uint64_t)d->config->exec_output_bytes,
		.exec_output_max = (uint64_t)d->config->exec_output_max_bytes,
		.max_lifetime_minutes = (unsigned)d->config->max_lifetime_minutes,
		.stray_grace_ms = (uint64_t)d->config->stray_grace_seconds * MS_PER_SECOND,
		.is_network_none_default = d->config->default_network == CONFIG_NETWORK_NONE,
		.guest_env = d->config->guest_env,
		.records_days = (unsigned)d->config->records_keep_days,
		.records_count = (unsigned)d->config->records_keep_count,
		.results_count = (unsigned)d->config->records_results,
		.result_bytes = (size_t)d->config->records_result_bytes,
	};

	if (d->config->guest_ca_file[0] != '\0') {
		if (fs_read(d->config->guest_ca_file, CA_FILE_MAX, &d->ca_pem, NULL, err) != 0) {
			return err_wrap(err, "guest.ca_file");
		}
		config.guest_ca_pem = d->ca_pem;
	}
	if (find_group(d, &config.gid, err) != 0) {
		return -1;
	}
	d->sandboxes = sandboxes_new(
		d->loop, &config, d->store, d->quotas, d->images, d->hv, d->guests, err);
	return d->sandboxes ? 0 : -1;
}

static void run_doctor(void *arg,
	void (*done)(void *done_arg, json_object *findings, const struct err *err), void *done_arg)
{
	struct daemon *d = arg;

	doctor_job_submit(d->loop, d->files, d->config, d->hv, d->netfilter, done, done_arg);
}

static void add_status(void *arg, json_object *status)
{
	struct daemon *d = arg;
	struct netfilter_status filter;

	netfilter_status(d->netfilter, &filter);
	json_object_object_add(
		status, "filter", json_object_new_string(filter_state_name(filter.state)));
	json_object_object_add(status, "filter_reason",
		filter.reason[0] ? json_object_new_string(filter.reason) : NULL);
	json_object_object_add(status, "filter_table", json_object_new_string(filter.table));
	json_object_object_add(status, "uid_first", json_object_new_int64(d->uids.first));
	json_object_object_add(status, "uid_count", json_object_new_int64(d->uids.count));
	json_object_object_add(status, "pid", json_object_new_int64(getpid()));
}

static void make_ops(struct daemon *d)
{
	for (unsigned i = 0; i < d->config->size_count; i++) {
		const struct config_size *size = &d->config->sizes[i];

		d->sizes[i] = (struct ops_size){
			size->name, size->vcpus, size->memory_mb, size->disk_gb};
	}
	const struct ops_parts parts = {
		.loop = d->loop,
		.store = d->store,
		.auth = d->auth,
		.quotas = d->quotas,
		.images = d->images,
		.hv = d->hv,
		.sandboxes = d->sandboxes,
	};
	const struct ops_config config = {
		.sizes = d->sizes,
		.size_count = d->config->size_count,
		.default_size = config_find_size(d->config, "small") ? "small" : d->sizes[0].name,
		.timeout_default_minutes = (unsigned)d->config->default_timeout_minutes,
		.max_lifetime_minutes = (unsigned)d->config->max_lifetime_minutes,
		.exec_timeout_ms = (uint64_t)d->config->exec_timeout_ms,
		.exec_timeout_max_ms = (uint64_t)d->config->exec_timeout_max_ms,
		.again_wait_ms = (uint64_t)d->config->boot_timeout_seconds * MS_PER_SECOND +
				 STOP_PATIENCE_MS,
		.exec_output_bytes = (uint64_t)d->config->exec_output_bytes,
		.exec_output_max_bytes = (uint64_t)d->config->exec_output_max_bytes,
		.body_bytes = (uint64_t)d->config->body_bytes,
		.upload_bytes = (uint64_t)d->config->upload_bytes,
		.bodies_total_bytes = (uint64_t)d->config->bodies_total_bytes,
		.is_egress_configured = d->config->default_network == CONFIG_NETWORK_EGRESS,
		.doctor = run_doctor,
		.status = add_status,
		.arg = d,
	};

	d->ops = ops_new(&parts, &config);
}

/* ---- life ---- */

static void on_drain(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *d = arg;

	(void)fd;
	(void)what;
	if (http_server_pending(d->http) == 0 || clock_monotonic_ms() >= d->drain_until_ms) {
		loop_stop(d->loop);
		return;
	}
	loop_timer_set(d->drain_timer, DRAIN_LOOK_MS);
}

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
	struct daemon *d = arg;

	(void)what;
	log_info("stopping", "signal=%d requests=%zu", (int)sig, http_server_pending(d->http));
	if (d->is_stopping) {
		loop_stop(d->loop);
		return;
	}
	d->is_stopping = true;
	d->drain_until_ms = clock_monotonic_ms() + SHUTDOWN_GRACE_MS;
	ops_shut(d->ops);
	http_server_stop(d->http);
	on_drain(-1, 0, d);
}

static void watch_signals(struct daemon *d)
{
	static const int numbers[] = {SIGTERM, SIGINT};

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		d->signals[i] = evsignal_new(loop_base(d->loop), numbers[i], on_signal, d);
		ASSERT(d->signals[i] && evsignal_add(d->signals[i], NULL) == 0);
	}
	d->drain_timer = loop_timer_new(d->loop, on_drain, d);
}

static void log_refused(void *arg, const struct image_status *status)
{
	char quoted[320];

	(void)arg;
	if (status->state == IMAGE_REFUSED) {
		log_warn("image refused", "image=%s problem=%s", status->name,
			log_quote(quoted, sizeof quoted, status->problem, strlen(status->problem)));
	}
}

static void on_images(void *arg, const struct err *err)
{
	struct daemon *d = arg;

	if (err && err->kind == ERR_CANCELLED) {
		return; /* it is stopping */
	}
	if (err) {
		log_failure(LOG_LEVEL_ERR, "the images can't be read", err, "default=%s",
			images_default(d->images));
		return;
	}
	images_each(d->images, log_refused, d);
}

static int make_files(struct daemon *d, struct err *err)
{
	const struct worker_limits limits = {.threads = 1, .spares = 1, .queue_max = 64};
	const struct images_config images = {
		.dir = d->config->images_dir, .default_name = d->config->default_image};

	d->files = worker_pool_new(d->loop, "disk", &limits, err);
	if (!d->files) {
		return -1;
	}
	d->images = images_new(d->loop, d->files, &images);
	images_refresh(d->images, on_images, d);
	return 0;
}

static int open_state(struct daemon *d, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/paddock.db", d->config->state_dir);

	d->state_dir = state_dir_open(d->config->state_dir, d->config->run_dir, err);
	if (!d->state_dir) {
		return -1;
	}
	d->store = store_open(path, err);
	return d->store ? state_dir_claim_run(d->config->state_dir, d->config->run_dir,
				  store_instance(d->store), err)
			: -1;
}

int daemon_start(struct daemon *d, struct err *err)
{
	bool is_loopback;

	if (config_parse_listen(
		    d->config->listen, &d->listen_host, &d->listen_port, &is_loopback, err) != 0 ||
		open_state(d, err) != 0) {
		return -1;
	}
	d->loop = loop_new(err);
	if (!d->loop || claim_uids(d, err) != 0 || read_exceptions(d, err) != 0 ||
		make_files(d, err) != 0 || make_quota(d, err) != 0 ||
		make_hypervisor(d, err) != 0) {
		return -1;
	}
	d->auth = auth_new(d->store);
	d->guests = guest_agent_driver_new(d->loop, NULL);
	if (make_sandboxes(d, err) != 0 || start_filter(d, err) != 0) {
		return -1;
	}
	make_ops(d);
	watch_signals(d);
	return start_http(d, err) != 0 ? -1 : sandboxes_start(d->sandboxes, err);
}

void daemon_run(struct daemon *d)
{
	loop_run(d->loop);
}

static void drop_events(struct daemon *d)
{
	for (size_t i = 0; i < ARRAY_SIZE(d->signals); i++) {
		if (d->signals[i]) {
			event_free(d->signals[i]);
		}
	}
	if (d->drain_timer) {
		event_free(d->drain_timer);
	}
}

bool daemon_free(struct daemon *d)
{
	struct err ignored;

	if (d->port_file) {
		(void)fs_remove(d->port_file, &ignored);
	}
	http_server_free(d->http);
	ops_free(d->ops);
	if (d->netfilter) {
		netfilter_free(d->netfilter);
	}
	if (d->sandboxes) {
		sandboxes_free(d->sandboxes);
	}
	if (d->guests) {
		guest_agent_driver_free(d->guests);
	}
	hv_libvirt_free(d->hv);
	bool is_clean = worker_pool_free(d->files, WORKER_GRACE_MS);
	images_free(d->images);
	auth_free(d->auth);
	quotas_free(d->quotas);
	drop_events(d);
	loop_free(d->loop);
	store_close(d->store);
	state_dir_close(d->state_dir);
	free(d->ca_pem);
	free(d->listen_host);
	free(d->port_file);
	free(d);
	return is_clean;
}

static int release(struct daemon *d, struct err *err)
{
	struct uidrange_settings settings;

	if (open_state(d, err) != 0) {
		return -1;
	}
	settings = uid_settings(d, 0);
	if (uidrange_release(&settings, err) != 0 ||
		netfilter_remove_blocking(settings.instance, err) != 0) {
		return -1;
	}
	printf("removed the nftables table of instance %s and gave its user ids back\n",
		settings.instance);
	return 0;
}

int daemon_release_host(const struct config *config, struct err *err)
{
	struct daemon *d = daemon_new(config);
	int rc = release(d, err);

	daemon_free(d);
	return rc;
}
