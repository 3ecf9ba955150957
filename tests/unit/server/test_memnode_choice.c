#include "tests/support/test.h"

#include "server/memnode/choice.h"
#include "server/net/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct memnode_choice choice;

static int choose(const char *transport, const char *listen, const char *host)
{
	const struct memnode_opts opts = { .transport = transport, .listen = listen, .host = host };

	memset(&choice, 0, sizeof(choice));
	return memnode_choose(&opts, &choice);
}

/* A library is missing, and a provider that somebody has named. */
static int without_networks(void **state)
{
	(void)state;
	return setenv("RLV_VERBS_MODULE", "/nowhere", 1) || setenv("RLV_OFI_PROVIDER", "none", 1);
}

TEST(memnode_choose__what_was_asked_for)
{
	static const char *const kinds[] = { "shm", "verbs", "ofi" };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		assert_int_equal(choose(kinds[i], NULL, NULL), 0);
		assert_string_equal(choice.kind, kinds[i]);
		assert_string_equal(choice.why, "as --transport says");
	}
	assert_int_equal(choose("shm", ":0", NULL), -EINVAL);
	assert_int_equal(choose("tcp", NULL, NULL), -EINVAL);
	assert_non_null(strstr(error_last(), "auto, shm, verbs or ofi"));
}

TEST(memnode_choose__shm_for_clients_of_this_host)
{
	assert_int_equal(choose(NULL, NULL, NULL), 0);
	assert_string_equal(choice.kind, "shm");
	assert_string_equal(choice.why, "server on this host");
	assert_int_equal(choose("auto", NULL, "127.0.0.1"), 0);
	assert_string_equal(choice.kind, "shm");
}

TEST_WITH(memnode_choose__shm_where_no_network_is_and_none_is_named, without_networks, NULL)
{
	assert_int_equal(choose(NULL, ":0", NULL), 0);
	assert_string_equal(choice.kind, "shm");
	assert_true(strlen(choice.why) > 0);
}

TEST_WITH(memnode_choose__refuses_where_a_network_is_needed_and_none_is, without_networks, NULL)
{
	assert_int_equal(choose("auto", NULL, "192.0.2.1"), -ENODEV);
	assert_int_equal(choose("auto", NULL, "@/tmp/store.uri"), -ENODEV);
	assert_int_equal(choose(NULL, "10.0.0.1:7", NULL), -ENODEV);
	assert_non_null(strstr(error_last(), "other hosts"));
}

static char address[CHOICE_LISTEN_BYTES];

static int take(const char *listen, const char *interface, const char *provider, uint16_t low)
{
	const struct memnode_opts opts = {
		.listen = listen,
		.interface = interface,
		.provider = provider,
		.ports = { low, low ? (uint16_t)(low + 9) : 0 },
	};

	memset(address, 0, sizeof(address));
	return memnode_take_network(&opts, address);
}

TEST(memnode_take_network__addresses)
{
	assert_int_equal(take(NULL, NULL, NULL, 0), 0);
	assert_string_equal(address, "");
	assert_int_equal(take("host:7", NULL, NULL, 0), 0);
	assert_string_equal(address, "host:7");
	assert_int_equal(take(":0", NULL, NULL, 0), 0);
	assert_string_equal(address, ":0");
	assert_int_equal(take("[::1]:7", NULL, NULL, 0), 0);
	assert_string_equal(address, "[::1]:7");
	assert_int_equal(take(NULL, "lo", NULL, 0), 0);
	assert_string_equal(address, "127.0.0.1:0");
	assert_int_equal(take(":7", "lo", NULL, 0), 0);
	assert_string_equal(address, "127.0.0.1:7");
	assert_int_equal(take("host:7", "lo", NULL, 0), -EINVAL);
	assert_int_equal(take(NULL, "nothing0", NULL, 0), -ENODEV);
	assert_non_null(strstr(error_last(), "nothing0"));
}

TEST(memnode_take_network__ports_and_provider)
{
	int fd;
	uint16_t taken;
	char want[32];

	assert_int_equal(tcp_bind("127.0.0.1", 0, &fd, &taken), 0); /* not the first one, then */
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(take(NULL, "lo", "shm", taken), 0);
	snprintf(want, sizeof(want), "127.0.0.1:%u", taken);
	assert_memory_equal(address, "127.0.0.1:", 10);
	assert_string_not_equal(address, want);
	snprintf(want, sizeof(want), "%u", taken);
	assert_string_equal(getenv("FI_TCP_PORT_LOW_RANGE"), want);
	assert_string_equal(getenv("RLV_OFI_PROVIDER"), "shm");
	assert_int_equal(take("host:7", NULL, NULL, taken), 0);
	assert_string_equal(address, "host:7");
	close(fd);
}

int main(void)
{
	return test_run(NULL, NULL);
}
