#pragma once

/*
 * capture - what a function under test prints
 *
 * Purpose: stdout or stderr goes into a file in memory between start and end.
 */

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

struct capture {
	FILE *stream;
	int saved;
	int fd;
	char text[16384];
};

static inline void capture_start(struct capture *c, FILE *stream)
{
	c->stream = stream;
	fflush(stream);
	c->saved = dup(fileno(stream));
	c->fd = memfd_create("capture", MFD_CLOEXEC);
	assert_true(c->saved >= 0 && c->fd >= 0);
	assert_true(dup2(c->fd, fileno(stream)) >= 0);
}

/* The text, valid until the next start. */
static inline const char *capture_end(struct capture *c)
{
	fflush(c->stream);
	assert_true(dup2(c->saved, fileno(c->stream)) >= 0);
	close(c->saved);

	ssize_t n = pread(c->fd, c->text, sizeof c->text - 1, 0);

	assert_true(n >= 0);
	c->text[n] = '\0';
	close(c->fd);
	return c->text;
}
