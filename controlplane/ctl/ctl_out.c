#include "ctl/ctl.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "ctl/signals.h"

#define CELL_MAX 512

void ctl_print_text(const char *text, size_t len, FILE *out)
{
	char printable[CELL_MAX];

	while (len > 0) {
		size_t used = log_printable(printable, sizeof printable, text, len);

		fputs(printable, out);
		text += used;
		len -= used;
	}
}

int ctl_write(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR) {
			if (signals_deal() != 0) {
				return -1;
			}
			continue;
		}
		/* Somebody else has the same terminal or pipe, and made it not block. */
		if (n < 0 && errno == EAGAIN) {
			poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
			if (signals_deal() != 0) {
				return -1;
			}
			continue;
		}
		if (n < 0 && errno == EPIPE && fd == STDOUT_FILENO) {
			signals_die(SIGPIPE);
		}
		if (n < 0) {
			fprintf(stderr, "paddockctl: writing the output: %s\n", strerror(errno));
			return -1;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

const char *ctl_member(json_object *object, const char *name)
{
	json_object *member = NULL;

	if (!json_object_object_get_ex(object, name, &member) || !member) {
		return "";
	}
	return json_object_get_string(member);
}

bool ctl_is_true(json_object *object, const char *name)
{
	return json_object_get_boolean(json_object_object_get(object, name));
}

static bool is_array_of_objects(json_object *array)
{
	if (!json_object_is_type(array, json_type_array)) {
		return false;
	}
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		if (!json_object_is_type(json_object_array_get_idx(array, i), json_type_object)) {
			return false;
		}
	}
	return true;
}

json_object *ctl_array(json_object *object, const char *name)
{
	json_object *member = NULL;

	if (json_object_object_get_ex(object, name, &member) && is_array_of_objects(member)) {
		return member;
	}
	fprintf(stderr, "paddockctl: the service's answer has no list \"%s\"\n", name);
	return NULL;
}

/* Columns that a terminal shows for @text: code points, which is right for what names are made of.
 */
static int width_of(const char *text)
{
	int width = 0;

	for (const char *c = text; *c; c++) {
		width += ((unsigned char)*c & 0xc0) != 0x80;
	}
	return width;
}

static const char *cell(json_object *row, const char *field, char out[CELL_MAX])
{
	const char *text = ctl_member(row, field);

	log_printable(out, CELL_MAX, text, strlen(text));
	return out[0] ? out : "-";
}

void ctl_print_table(json_object *array, const struct ctl_column *columns, size_t count)
{
	char text[CELL_MAX];
	size_t rows = json_object_array_length(array);
	int width[16];

	ASSERT(count <= ARRAY_SIZE(width));
	for (size_t c = 0; c < count; c++) {
		width[c] = width_of(columns[c].title);
		for (size_t r = 0; r < rows; r++) {
			json_object *row = json_object_array_get_idx(array, r);

			width[c] = MAX(width[c], width_of(cell(row, columns[c].field, text)));
		}
	}
	for (size_t r = 0; r <= rows; r++) {
		json_object *row = r > 0 ? json_object_array_get_idx(array, r - 1) : NULL;

		for (size_t c = 0; c < count; c++) {
			const char *value = r > 0 ? cell(row, columns[c].field, text)
						  : columns[c].title;
			int pad = c + 1 < count ? width[c] - width_of(value) + 2 : 0;

			printf("%s%*s", value, pad, "");
		}
		putchar('\n');
	}
}

void ctl_print_record(json_object *object)
{
	int width = 0;

	json_object_object_foreach (object, name, value) {
		(void)value;
		width = MAX(width, width_of(name));
	}
	json_object_object_foreach (object, key, member) {
		const char *text = member ? json_object_get_string(member) : "-";

		printf("%s:%*s ", key, width - width_of(key), "");
		ctl_print_text(text, strlen(text), stdout);
		putchar('\n');
	}
}

void ctl_print_json(json_object *object)
{
	printf("%s\n", json_text(object, NULL));
}
