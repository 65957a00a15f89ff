#include "src/facts.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "proto/msg.h"
#include "src/util.h"

struct facts facts;
static char boot_id[33];

/*
 * Of our own making: the kernel makes its boot_id when it is first read, and a template that is
 * forked later must not have read it.
 */
static void make_boot_id(void)
{
	unsigned char raw[16] = {0};

	if (getrandom(raw, sizeof raw, GRND_NONBLOCK) != (ssize_t)sizeof raw) {
		uint64_t now = now_us();

		memcpy(raw, &now, sizeof now);
	}
	for (size_t i = 0; i < sizeof raw; i++) {
		snprintf(boot_id + 2 * i, 3, "%02x", raw[i]);
	}
}

const char *facts_boot_id(void)
{
	return boot_id;
}

void facts_init(void)
{
	facts.features = PROTO_FEATURE_CLOCK;
	if (util_read_text("/etc/paddock-image", facts.image, sizeof facts.image) > 0) {
		facts.image[strcspn(facts.image, "\n")] = '\0';
	}
	make_boot_id();
}
