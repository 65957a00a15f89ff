#include "ctl/ctl.h"

#include <stdlib.h>
#include <string.h>

#include "api/api_errors.h"
#include "base/xalloc.h"

const char *ctl_environment(const char *name)
{
	const char *value = getenv(name);

	return value && value[0] ? value : NULL;
}

char *ctl_admin_socket(const struct ctl *ctl)
{
	const char *socket = ctl->socket ? ctl->socket : ctl_environment("PADDOCK_ADMIN_SOCKET");
	const char *dir = ctl_environment("PADDOCK_STATE_DIR");

	if (socket) {
		return xstrdup(socket);
	}
	return xasprintf("%s/admin.sock", dir ? dir : "/var/lib/paddock");
}

void ctl_print_failure(const struct err *err, const struct rest_response *response)
{
	fputs("paddockctl: ", stderr);
	ctl_print_text(err->msg, strlen(err->msg), stderr);
	if (err->kind == ERR_INTERNAL && response->request_id[0]) {
		fprintf(stderr, " (request %s)", response->request_id);
	}
	fputc('\n', stderr);
}

struct rest_client *ctl_client_new(const struct ctl *ctl, const struct ctl_verb *verb)
{
	bool is_local = verb->is_admin || ctl->socket;
	_cleanup_free_ char *socket = is_local ? ctl_admin_socket(ctl) : NULL;
	struct rest_config config = {.url = ctl->url, .key = ctl->key, .socket = socket};
	struct err err = ERR_INIT;

	if (!is_local && !ctl->key && api_row(verb->op)->scope != API_SCOPE_ANONYMOUS) {
		fprintf(stderr, "paddockctl: set PADDOCK_API_KEY to your key, or use --key\n");
		return NULL;
	}
	struct rest_client *client = rest_client_new(&config, &err);

	if (!client) {
		fprintf(stderr, "paddockctl: %s; see PADDOCK_URL and PADDOCK_API_KEY\n", err.msg);
	}
	return client;
}

bool ctl_has_client(struct ctl *ctl, const struct ctl_verb *verb)
{
	if (!ctl->client) {
		ctl->client = ctl_client_new(ctl, verb);
	}
	return ctl->client != NULL;
}

int ctl_call_request(struct ctl *ctl, const struct ctl_verb *verb,
	const struct rest_request *request, struct rest_response *ret)
{
	struct err err = ERR_INIT;

	if (!ctl_has_client(ctl, verb)) {
		return CTL_EXIT_USAGE;
	}
	if (rest_call(ctl->client, request, ret, &err) == 0) {
		return 0;
	}
	if (err.kind == ERR_CANCELLED) {
		return CTL_EXIT_FAILED;
	}
	ctl_print_failure(&err, ret);
	return api_error_of(err.kind)->exit_code;
}

int ctl_call(struct ctl *ctl, const struct ctl_verb *verb, const char *id, json_object *values,
	struct rest_response *ret)
{
	const struct api_row *row = api_row(verb->op);
	struct rest_request request = {.row = row, .id = id};

	if (api_row_has_body(row)) {
		request.body = values;
	} else {
		request.query = values;
	}
	return ctl_call_request(ctl, verb, &request, ret);
}
