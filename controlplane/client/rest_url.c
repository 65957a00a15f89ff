#include "client/rest_private.h"

#include <string.h>

#include "base/xalloc.h"
#include "client/buffer.h"

static void add_escaped(struct buffer *b, const char *text)
{
	static const char hex[] = "0123456789ABCDEF";

	for (const char *c = text; *c; c++) {
		char piece[3] = {'%', hex[(unsigned char)*c >> 4], hex[(unsigned char)*c & 15]};
		bool is_plain = strchr("-._~", *c) || (*c >= '0' && *c <= '9') ||
				(*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');

		buffer_add(b, is_plain ? c : piece, is_plain ? 1 : 3);
	}
}

struct query {
	struct buffer *url;
	bool has_pair;
};

static void add_pair(struct query *query, const char *name, const char *value)
{
	buffer_add_text(query->url, query->has_pair ? "&" : "?");
	add_escaped(query->url, name);
	buffer_add_text(query->url, "=");
	add_escaped(query->url, value);
	query->has_pair = true;
}

/* As api_args reads them: an array repeats its name, an object's members are NAME.KEY. */
static void add_member(struct query *query, const char *name, json_object *value)
{
	if (json_object_is_type(value, json_type_array)) {
		for (size_t i = 0; i < json_object_array_length(value); i++) {
			add_pair(query, name,
				json_object_get_string(json_object_array_get_idx(value, i)));
		}
	} else if (json_object_is_type(value, json_type_object)) {
		json_object_object_foreach (value, key, member) {
			_cleanup_free_ char *full = xasprintf("%s.%s", name, key);

			add_pair(query, full, json_object_get_string(member));
		}
	} else if (value) {
		add_pair(query, name, json_object_get_string(value));
	}
}

/* The row's path with its slots filled. */
static void add_path(struct buffer *url, const struct rest_request *request)
{
	const char *path = request->row->path;

	for (const char *slot; (slot = strchr(path, '{')) != NULL; path = strchr(slot, '}') + 1) {
		const char *value = strncmp(slot, "{eid}", 5) == 0 ? request->exec_id : request->id;

		ASSERT(value != NULL);
		buffer_add(url, path, (size_t)(slot - path));
		add_escaped(url, value);
	}
	buffer_add_text(url, path);
}

char *rest_url(const struct rest_client *client, const struct rest_request *request)
{
	struct buffer url = {0};
	struct query query = {.url = &url};

	buffer_add_text(&url, client->origin);
	add_path(&url, request);
	if (request->query) {
		json_object_object_foreach (request->query, name, value) {
			add_member(&query, name, value);
		}
	}
	return url.data;
}
