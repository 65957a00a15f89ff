#include "client/rest_client.h"

#include <poll.h>
#include <string.h>

#include "api/api_errors.h"
#include "base/xalloc.h"
#include "client/buffer.h"
#include "client/rest_private.h"

/*
 * Theory of operation. A JSON answer is collected up to ANSWER_MAX; a raw one goes straight to the
 * caller's function, but only once the status is known to be a success: an error comes as JSON
 * whatever was asked for. libcurl reports headers first, so on_body() can decide.
 *
 * Body and answer go at the same time. Where the body comes from a descriptor that has nothing yet,
 * libcurl is told to pause the sending, and the loop in perform() wakes it.
 *
 * The callbacks can only tell libcurl to stop; why they did is kept in transfer.fault.
 */

#define ANSWER_MAX ((size_t)512 * 1024 * 1024)

enum fault {
	FAULT_NONE,
	FAULT_ENOUGH,    /* none: the caller has what it wanted */
	FAULT_GAVE_UP,   /* a callback of the caller's */
	FAULT_SHORT,     /* the raw body ended before its promised length */
	FAULT_TOO_LARGE, /* the answer */
};

struct transfer {
	struct rest_client *client;
	const struct rest_request *request;
	struct rest_response *response;
	struct buffer answer;
	uint64_t sent_bytes; /* of a raw body */
	bool is_sent;        /* all of it */
	bool is_paused;      /* sending waits for request->read_fd */
	bool has_end;        /* the answer says where it ends */
	uint64_t end;        /* UINT64_MAX: unknown beforehand */
	enum fault fault;
};

/* Anything else would end the header and start another. */
static bool is_header_safe(const char *key)
{
	for (const char *c = key; *c; c++) {
		if (*c <= ' ' || *c > '~') {
			return false;
		}
	}
	return true;
}

struct rest_client *rest_client_new(const struct rest_config *config, struct err *err)
{
	size_t len = config->socket ? 0 : strlen(config->url);

	if (!config->socket && strncmp(config->url, "http://", 7) != 0 &&
		strncmp(config->url, "https://", 8) != 0) {
		err_set(err, ERR_INVALID, "the URL must start with http:// or https://");
		return NULL;
	}
	if (!config->socket && config->key && !is_header_safe(config->key)) {
		err_set(err, ERR_INVALID, "the key has a character that no key has");
		return NULL;
	}
	struct rest_client *client = xnew(struct rest_client);

	curl_global_init(CURL_GLOBAL_DEFAULT);
	client->curl = curl_easy_init();
	client->multi = curl_multi_init();
	ASSERT(client->curl != NULL && client->multi != NULL);
	if (config->socket) {
		client->socket = xstrdup(config->socket);
		client->origin = xstrdup("http://localhost");
		client->where = xasprintf("the admin socket %s", config->socket);
		return client;
	}
	while (len > 0 && config->url[len - 1] == '/') {
		len--;
	}
	if (len > 3 && strncmp(config->url + len - 3, "/v1", 3) == 0) {
		len -= 3;
	}
	client->origin = xasprintf("%.*s", (int)len, config->url);
	client->where = xstrdup(client->origin);
	if (config->key) {
		client->auth_header = xasprintf("Authorization: Bearer %s", config->key);
	}
	return client;
}

void rest_client_free(struct rest_client *client)
{
	if (!client) {
		return;
	}
	curl_easy_cleanup(client->curl);
	curl_multi_cleanup(client->multi);
	if (client->auth_header) {
		explicit_bzero(client->auth_header, strlen(client->auth_header));
	}
	free(client->auth_header);
	free(client->origin);
	free(client->where);
	free(client->socket);
	free(client);
}

void rest_response_fini(struct rest_response *response)
{
	json_object_put(response->json);
	response->json = NULL;
}

static bool is_readable(int fd)
{
	struct pollfd one = {.fd = fd, .events = POLLIN};

	return poll(&one, 1, 0) > 0;
}

static size_t on_read(char *out, size_t size, size_t count, void *arg)
{
	struct transfer *t = arg;
	size_t room = size * count;
	bool is_known = t->request->read_bytes != UINT64_MAX;

	/* libcurl would send more than was promised, or wait without end for what isn't there. */
	if (is_known) {
		room = (size_t)MIN((uint64_t)room, t->request->read_bytes - t->sent_bytes);
	}
	if (room == 0) {
		t->is_sent = true;
		return 0;
	}
	const int *fd = t->request->read_fd;

	if (fd && *fd >= 0 && !is_readable(*fd)) {
		t->is_paused = true;
		return CURL_READFUNC_PAUSE;
	}
	long n = t->request->read(t->request->read_arg, out, room);
	if (n < 0 || (n == 0 && is_known)) {
		t->fault = n < 0 ? FAULT_GAVE_UP : FAULT_SHORT;
		return CURL_READFUNC_ABORT;
	}
	t->sent_bytes += (uint64_t)n;
	t->is_sent = n == 0;
	return (size_t)n;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
	struct transfer *t = arg;
	size_t len = size * count;
	long status = 0;

	curl_easy_getinfo(t->client->curl, CURLINFO_RESPONSE_CODE, &status);
	if (t->request->write && status >= 200 && status < 300) {
		int rc = t->request->write(t->request->write_arg, data, len);

		if (rc != 0) {
			t->fault = rc > 0 ? FAULT_ENOUGH : FAULT_GAVE_UP;
		}
		return rc == 0 ? len : 0;
	}
	if (len > ANSWER_MAX - t->answer.len) {
		t->fault = FAULT_TOO_LARGE;
		return 0;
	}
	buffer_add(&t->answer, data, len);
	/* libcurl would wait for the rest of the body, which nobody wants any more. */
	if (t->request->read && !t->is_sent && t->answer.len >= t->end) {
		t->fault = FAULT_ENOUGH;
		return 0;
	}
	return len;
}

/* What follows "@name:" in the header line, which isn't terminated; NULL: another header's. */
static const char *header_value(const char *line, size_t len, const char *name)
{
	size_t n = strlen(name);

	return len > n && strncasecmp(line, name, n) == 0 && line[n] == ':' ? line + n + 1 : NULL;
}

static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
	struct transfer *t = arg;
	size_t len = size * count;
	const char *id = header_value(data, len, "X-Request-Id");

	if (id) {
		_cleanup_free_ char *text = xasprintf("%.*s", (int)(data + len - id), id);
		const char *start = text + strspn(text, " ");
		size_t n = strspn(start, "abcdefghijklmnopqrstuvwxyz0123456789_");

		snprintf(t->response->request_id, sizeof t->response->request_id, "%.*s", (int)n,
			start);
	}
	const char *length = header_value(data, len, "Content-Length");

	if (length) {
		t->end = strtoull(length, NULL, 10);
	}
	t->has_end = t->has_end || length || header_value(data, len, "Transfer-Encoding");
	return len;
}

static struct curl_slist *make_headers(
	const struct rest_client *client, const struct rest_request *request)
{
	struct curl_slist *headers = NULL;

	if (client->auth_header) {
		headers = curl_slist_append(headers, client->auth_header);
	}
	if (request->read) {
		headers = curl_slist_append(headers, "Content-Type: application/octet-stream");
	} else if (request->body) {
		headers = curl_slist_append(headers, "Content-Type: application/json");
	} else {
		headers = curl_slist_append(headers, "Content-Type:"); /* libcurl has an own idea */
	}
	const char *accept = request->wants_events ? "Accept: text/event-stream"
			     : request->write      ? "Accept: application/octet-stream"
						   : "Accept: application/json";

	headers = curl_slist_append(headers, accept);
	/* No pause for 100-continue: the service is near, and takes or refuses a body quickly. */
	headers = curl_slist_append(headers, "Expect:");
	if (request->idempotency_key) {
		_cleanup_free_ char *line = xasprintf(
			"Idempotency-Key: %s", request->idempotency_key);
		headers = curl_slist_append(headers, line);
	}
	ASSERT(headers != NULL);
	return headers;
}

static void set_body(CURL *curl, const struct rest_request *request, struct transfer *t)
{
	if (request->read) {
		curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_read);
		curl_easy_setopt(curl, CURLOPT_READDATA, t);
		if (request->read_bytes != UINT64_MAX) {
			curl_easy_setopt(
				curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->read_bytes);
		}
	} else if (request->body) {
		size_t len;
		const char *text = json_text(request->body, &len);

		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, text);
	} else if (request->row->method == API_POST || request->row->method == API_PUT) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, 0L);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
	}
	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, api_method_name(request->row->method));
}

int rest_unreachable(
	const struct rest_client *client, CURLcode rc, const char *detail, struct err *err)
{
	const char *why = detail[0] ? detail : curl_easy_strerror(rc);

	if (client->socket) {
		return err_set(err, ERR_UNAVAILABLE,
			"can't reach paddockd through %s: %s; is it running, and are you root?",
			client->where, why);
	}
	return err_set(err, ERR_UNAVAILABLE,
		"can't reach paddockd at %s: %s; is it running, and is PADDOCK_URL right?",
		client->where, why);
}

static int transfer_failed(
	const struct transfer *t, CURLcode rc, const char *detail, struct err *err)
{
	switch (t->fault) {
	case FAULT_GAVE_UP:
		return err_set(err, ERR_CANCELLED, "given up");
	case FAULT_SHORT:
		return err_set(err, ERR_INVALID, "the content ended after %llu of %llu bytes",
			(unsigned long long)t->sent_bytes,
			(unsigned long long)t->request->read_bytes);
	case FAULT_TOO_LARGE:
		return err_set(err, ERR_TOO_LARGE, "the answer of %s is larger than %zu bytes",
			t->client->where, ANSWER_MAX);
	case FAULT_NONE:
	case FAULT_ENOUGH:
	default:
		break;
	}
	long status = 0;

	curl_easy_getinfo(t->client->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status != 0) {
		return err_set(err, ERR_UNAVAILABLE, "the answer of %s broke off: %s",
			t->client->where, detail[0] ? detail : curl_easy_strerror(rc));
	}
	return rest_unreachable(t->client, rc, detail, err);
}

int rest_refused(const struct rest_response *response, struct err *err)
{
	json_object *error = NULL;
	json_object *type = NULL;
	json_object *message = NULL;

	if (json_object_object_get_ex(response->json, "error", &error) &&
		json_object_object_get_ex(error, "type", &type) &&
		json_object_object_get_ex(error, "message", &message) &&
		json_object_is_type(type, json_type_string) &&
		json_object_is_type(message, json_type_string)) {
		return err_set(err, api_error_parse(json_object_get_string(type)), "%s",
			json_object_get_string(message));
	}
	return err_set(err, ERR_INTERNAL, "the service answered with status %d", response->status);
}

static int read_answer(struct transfer *t, struct err *err)
{
	long status = 0;

	curl_easy_getinfo(t->client->curl, CURLINFO_RESPONSE_CODE, &status);
	bool is_success = status >= 200 && status < 300;

	t->response->status = (int)status;
	if (t->answer.len > 0) {
		t->response->json = json_parse_answer(t->answer.data, t->answer.len, err);
	}
	if (!is_success) {
		return rest_refused(t->response, err);
	}
	/* One that ends with the connection can't be told from one that was cut. */
	if (t->request->write && !t->has_end && t->fault != FAULT_ENOUGH) {
		return err_set(
			err, ERR_UNAVAILABLE, "the answer of %s broke off", t->client->where);
	}
	/* Every operation answers with an object, and callers count on one. */
	if (!t->request->write && !json_object_is_type(t->response->json, json_type_object)) {
		return err_set(err, ERR_INTERNAL, "%s answered something that isn't a JSON object",
			t->client->where);
	}
	return 0;
}

void rest_set_connection(const struct rest_client *client, CURL *curl, char *detail)
{
	/* An id of ".." is the service's to refuse; libcurl would call another path. */
	curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 10L);
	/* A command may take hours, but a host that has gone must not hold us for good. */
	curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
	if (client->socket) {
		curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, client->socket);
		curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* whatever http_proxy says */
	}
}

/* Until something can go on; false: the caller gave up. */
static bool wait_for_more(struct transfer *t)
{
	const struct rest_request *request = t->request;
	struct curl_waitfd fds[2];
	unsigned count = 0;

	if (request->ready) {
		fds[count++] = (struct curl_waitfd){
			.fd = request->ready_fd, .events = CURL_WAIT_POLLIN};
	}
	if (t->is_paused) {
		fds[count++] = (struct curl_waitfd){
			.fd = *request->read_fd, .events = CURL_WAIT_POLLIN};
	}
	curl_multi_poll(t->client->multi, fds, count, 60 * 1000, NULL);
	/* What libcurl says about our descriptors knows no hang-up. */
	if (request->ready && is_readable(request->ready_fd) &&
		request->ready(request->ready_arg) != 0) {
		t->fault = FAULT_GAVE_UP;
		return false;
	}
	if (t->is_paused && is_readable(*request->read_fd)) {
		t->is_paused = false;
		curl_easy_pause(t->client->curl, CURLPAUSE_CONT);
	}
	return true;
}

static CURLcode perform(struct transfer *t)
{
	CURLM *multi = t->client->multi;
	CURLcode result = CURLE_ABORTED_BY_CALLBACK;
	int running = 0;
	int left;

	curl_multi_add_handle(multi, t->client->curl);
	do {
		if (curl_multi_perform(multi, &running) != CURLM_OK) {
			result = CURLE_FAILED_INIT;
			break;
		}
	} while (running > 0 && wait_for_more(t));
	for (CURLMsg *message; (message = curl_multi_info_read(multi, &left)) != NULL;) {
		result = message->data.result;
	}
	curl_multi_remove_handle(multi, t->client->curl);
	return result;
}

int rest_call(struct rest_client *client, const struct rest_request *request,
	struct rest_response *ret, struct err *err)
{
	if ((request->id && !request->id[0]) || (request->exec_id && !request->exec_id[0])) {
		return err_set(err, ERR_INVALID, "the id is empty");
	}
	_cleanup_free_ char *url = rest_url(client, request);
	struct curl_slist *headers = make_headers(client, request);
	struct transfer t = {
		.client = client, .request = request, .response = ret, .end = UINT64_MAX};
	char detail[CURL_ERROR_SIZE] = "";
	CURL *curl = client->curl;

	/* Keeps the connection. */
	curl_easy_reset(curl);
	rest_set_connection(client, curl, detail);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)request->timeout_s);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, &t);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, &t);
	set_body(curl, request, &t);

	CURLcode rc = perform(&t);
	bool is_answered = rc == CURLE_OK || t.fault == FAULT_ENOUGH;
	int result = is_answered ? read_answer(&t, err) : transfer_failed(&t, rc, detail, err);

	curl_slist_free_all(headers);
	buffer_fini(&t.answer);
	return result;
}
