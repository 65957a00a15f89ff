#include "tests/lib/http_world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

/*
 * The HTTP server over the domain on fakes, for a load generator: what a request costs beside the
 * virtual machine. Prints URL and key, then runs for the seconds given.
 *
 *	bench-http-server 20 >where & read url key <where; wrk -H "Authorization: Bearer $key" $url
 */

static void on_end(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	loop_stop(arg);
}

int main(int argc, char **argv)
{
	struct timeval seconds = {.tv_sec = argc > 1 ? atoi(argv[1]) : 10};
	struct http_world *h = http_world_new(NULL);
	const char *id = http_running(h, NULL);
	struct event *end = evtimer_new(loop_base(h->w->loop), on_end, h->w->loop);

	/* As in a real daemon: each call writes its line to standard error. */
	log_set_level(LOG_LEVEL_INFO);
	printf("http://127.0.0.1:%u/v1/sandboxes/%s %s\n", h->port, id, h->key);
	fflush(stdout);
	evtimer_add(end, &seconds);
	loop_run(h->w->loop);
	event_free(end);
	http_world_free(h);
	return 0;
}
