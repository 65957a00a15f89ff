#include "ctl/input.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/base64.h"
#include "base/xalloc.h"
#include "client/buffer.h"

_Static_assert(BASE64_ENCODED_BYTES(INPUT_COLLECT_MAX) + 1024 * 1024 < API_JSON_MAX_BYTES,
	"room for the command, too");

static long read_some(int fd, void *out, size_t size)
{
	ssize_t n;

	while ((n = read(fd, out, size)) < 0 && (errno == EINTR || errno == EAGAIN)) {
		/* Somebody else has the same terminal or pipe, and made it not block. */
		if (errno == EAGAIN) {
			poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
		}
	}
	if (n < 0) {
		fprintf(stderr, "paddockctl: reading stdin: %s\n", strerror(errno));
	}
	return (long)n;
}

int input_open(struct input *input)
{
	struct pollfd one = {.fd = STDIN_FILENO, .events = POLLIN};

	input->fd = STDIN_FILENO;
	input->used = input->len = 0;
	if (poll(&one, 1, 0) <= 0) {
		return 1;
	}
	long n = read_some(STDIN_FILENO, input->first, sizeof input->first);

	if (n > 0) {
		input->len = (size_t)n;
		input->fd = -1;
	}
	return n < 0 ? -1 : n > 0;
}

static long read_input(void *arg, void *out, size_t size)
{
	struct input *input = arg;
	size_t n = MIN(size, input->len - input->used);

	if (n == 0) {
		return read_some(STDIN_FILENO, out, size);
	}
	memcpy(out, input->first + input->used, n);
	input->used += n;
	input->fd = input->used == input->len ? STDIN_FILENO : -1;
	return (long)n;
}

void input_stream(struct input *input, struct rest_request *request)
{
	request->read = read_input;
	request->read_arg = input;
	request->read_bytes = UINT64_MAX;
	request->read_fd = &input->fd;
}

json_object *input_collect(struct input *input)
{
	_cleanup_buffer_ struct buffer all = {0};
	char piece[65536];
	long n;

	while ((n = read_input(input, piece, sizeof piece)) > 0) {
		buffer_add(&all, piece, (size_t)n);
		if (all.len > INPUT_COLLECT_MAX) {
			fprintf(stderr,
				"paddockctl: beside a command this long stdin may have at most %d "
				"MiB; push it, or the command, as a file\n",
				INPUT_COLLECT_MAX_MIB);
			return NULL;
		}
	}
	if (n < 0) {
		return NULL;
	}
	size_t len = BASE64_ENCODED_BYTES(all.len);
	_cleanup_free_ char *text = xcalloc(1, len + 1);

	base64_encode(text, all.data ? all.data : "", all.len);
	return json_object_new_string_len(text, (int)len);
}
