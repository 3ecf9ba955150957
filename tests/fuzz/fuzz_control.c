/*
 * Fuzzes the metadata server: a real one on a thread of this process, with a memory node in another and
 * a table, whose peer the input is. Input: one byte, enum peer, then frames: type, flags (enum how), u16 length,
 * that many bytes. A peer that was let in also answers what the server asks of it.
 *
 * After each input the server has to answer somebody else in time.
 */
#include "server/memnode/memnode.h"
#include "server/metad/metad.h"

#include "ds/replay/shard.h"

#include "wire/control/dial.h"
#include "wire/region.h"

#include "relive/relive.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define STORE "s"
#define ANSWER_NS (8 * CLOCK_NS_PER_S)
#define LOOK_NS (2 * CLOCK_NS_PER_MS)
#define TYPES 64
#define FRAMES_MAX 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum peer { STRANGER, CLIENT, NODE, PEERS };

/* Meaning of the bytes of a frame. */
enum how {
	LIKE_TEMPLATE = 1, /* changes of a message that is right: u16 offset, u8 to xor there */
	AS_ANSWER = 2,     /* answer to the server's last request */
};

static struct metad *md;
static struct runtime_dir dir;
static char root[] = "/tmp/relive-fuzz-XXXXXX";
static uint8_t *templates[TYPES];
static size_t template_bytes[TYPES];
static struct rlv_store *store;

static void must(int ret)
{
	if (ret) {
		fprintf(stderr, "fuzz_control: %s\n", error_last());
		abort();
	}
}

/* -------- server, node and table -------- */

static void *run_server(void *arg)
{
	(void)arg;
	must(metad_run(md));
	return NULL;
}

/* In a process of its own, which ends with this one. */
static void start_node(void)
{
	const struct memnode_opts opts = {
		.name = "honest", .store = STORE, .pool_bytes = 64 << 20, .pages = PAGE_SMALL
	};
	struct memnode *node;
	pid_t pid = fork();

	if (pid < 0)
		abort();
	if (pid > 0)
		return;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || memnode_open(&opts, &node) || memnode_run(node))
		fprintf(stderr, "fuzz_control: node: %s\n", error_last());
	_exit(1);
}

static void start_thread(void *(*run)(void *))
{
	pthread_t thread;

	must(pthread_create(&thread, NULL, run, NULL));
	must(pthread_detach(thread));
}

static int make_table(void)
{
	static const struct rlv_column columns[] = {
		{ .name = "obs", .dtype = RLV_F32, .role = RLV_OBS, .ndim = 1, .shape = { 4 } },
		{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
	};
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table = NULL;
	int ret;

	opts.columns = columns;
	opts.n_columns = 2;
	opts.capacity = 1024;
	ret = rlv_table_create(store, "t", &opts, &table);
	return ret ? ret : rlv_table_close(&table);
}

static int dial(const char *role, struct channel *ch, struct dial_peer *peer)
{
	char path[RUNTIME_PATH_BYTES];
	const struct dial_opts opts = {
		.socket = path,
		.token = md->token,
		.role = role,
		.software = "fuzz",
		.deadline_ns = deadline_after(clock_monotonic(), ANSWER_NS),
	};

	must(runtime_dir_file(&dir, "metad.sock", path));
	return dial_open(&opts, ch, peer);
}

/* -------- messages that are right -------- */

static void keep(uint32_t type, const ProtobufCMessage *message)
{
	template_bytes[type] = protobuf_c_message_get_packed_size(message);
	templates[type] = malloc(template_bytes[type] + 1);
	if (!templates[type])
		abort();
	protobuf_c_message_pack(message, templates[type]);
}

static void keep_hello(void)
{
	static uint8_t nonce[AUTH_NONCE_BYTES], boot_id[16];
	Relive__HelloRequest hello = RELIVE__HELLO_REQUEST__INIT;
	Relive__AuthRequest auth = RELIVE__AUTH_REQUEST__INIT;

	hello.format_major = REGION_FORMAT_MAJOR;
	hello.software = (char *)"fuzz";
	hello.role = (char *)"client";
	hello.nonce = (ProtobufCBinaryData){ sizeof(nonce), nonce };
	hello.boot_id = (ProtobufCBinaryData){ sizeof(boot_id), boot_id };
	keep(RELIVE__TYPE__TYPE_HELLO, &hello.base);
	auth.proof = (ProtobufCBinaryData){ sizeof(nonce), nonce };
	keep(RELIVE__TYPE__TYPE_AUTH, &auth.base);
}

/* The descriptor of the table that is there, as that of another one. */
static void keep_create(const Relive__TableReply *reply)
{
	Relive__TableCreateRequest create = RELIVE__TABLE_CREATE_REQUEST__INIT;
	Relive__SlotRequest slot = RELIVE__SLOT_REQUEST__INIT;
	struct table_desc desc;

	if (reply->desc.len != sizeof(desc))
		abort();
	memcpy(&desc, reply->desc.data, sizeof(desc));
	slot.table_id = desc.table_id;
	slot.table_uuid = (ProtobufCBinaryData){ sizeof(desc.uuid), desc.uuid };
	slot.owner = 1;
	slot.streams = 1;
	keep(RELIVE__TYPE__TYPE_SLOT_PUT, &slot.base);
	slot.owner = 0;
	keep(RELIVE__TYPE__TYPE_SLOT_GET, &slot.base);
	desc.name[0] = 'u';
	table_desc_seal(&desc, 0);
	create.desc = (ProtobufCBinaryData){ sizeof(desc), (uint8_t *)&desc };
	keep(RELIVE__TYPE__TYPE_TABLE_CREATE, &create.base);
}

static void keep_names(void)
{
	Relive__TableOpenRequest open = RELIVE__TABLE_OPEN_REQUEST__INIT;
	Relive__TableDropRequest drop = RELIVE__TABLE_DROP_REQUEST__INIT;
	Relive__TableRebalanceRequest rebalance = RELIVE__TABLE_REBALANCE_REQUEST__INIT;
	Relive__NodeNameRequest name = RELIVE__NODE_NAME_REQUEST__INIT;

	open.name = drop.name = rebalance.name = (char *)"u";
	keep(RELIVE__TYPE__TYPE_TABLE_DROP, &drop.base);
	keep(RELIVE__TYPE__TYPE_TABLE_REBALANCE, &rebalance.base);
	open.name = (char *)"t";
	keep(RELIVE__TYPE__TYPE_TABLE_OPEN, &open.base);
	name.name = (char *)"rogue";
	keep(RELIVE__TYPE__TYPE_NODE_DRAIN, &name.base);
	keep(RELIVE__TYPE__TYPE_NODE_DROP, &name.base);
}

/* A node that has two regions, at the address of the honest one. */
static void keep_register(void)
{
	static uint8_t uuid[16] = { 1 };
	Relive__NodeRegisterRequest request = RELIVE__NODE_REGISTER_REQUEST__INIT;
	Relive__NodeRegion regions[2] = { RELIVE__NODE_REGION__INIT, RELIVE__NODE_REGION__INIT };
	Relive__NodeRegion *list[] = { &regions[0], &regions[1] };
	Relive__NodePart part = RELIVE__NODE_PART__INIT;
	char uri[RUNTIME_PATH_BYTES];

	snprintf(uri, sizeof(uri), "shm:%.80s/memnode-honest.sock", dir.path);
	part.name = (char *)"t";
	for (uint32_t i = 0; i < 2; i++) {
		regions[i].region = i + 1;
		regions[i].kind = OBJECT_TABLE;
		regions[i].object = 1;
		regions[i].role = i + 1;
		regions[i].size = 2 << 20;
		regions[i].uuid = (ProtobufCBinaryData){ sizeof(uuid), uuid };
	}
	regions[0].has = &part;
	request.name = (char *)"rogue";
	request.uri = uri;
	request.incarnation = 7;
	request.pool_bytes = UINT64_C(1) << 40;
	request.n_regions = 2;
	request.regions = list;
	request.pages = (char *)"thp";
	request.store_name = (char *)STORE;
	keep(RELIVE__TYPE__TYPE_NODE_REGISTER, &request.base);
}

static void keep_others(void)
{
	const Relive__Empty empty = RELIVE__EMPTY__INIT;
	Relive__BackupRequest backup = RELIVE__BACKUP_REQUEST__INIT;
	Relive__LeaseRenewRequest renew = RELIVE__LEASE_RENEW_REQUEST__INIT;

	renew.layout = 1;
	backup.offset = 0;
	keep(RELIVE__TYPE__TYPE_LEASE_RENEW, &renew.base);
	keep(RELIVE__TYPE__TYPE_BACKUP, &backup.base);
	for (uint32_t type = 1; type < TYPES; type++)
		if (!templates[type])
			keep(type, &empty.base);
}

static void ask_for_table(void)
{
	Relive__TableOpenRequest open = RELIVE__TABLE_OPEN_REQUEST__INIT;
	Relive__TableReply *reply;
	struct channel_frame frame;
	struct dial_peer peer;
	struct channel ch;

	open.name = (char *)"t";
	must(dial("client", &ch, &peer));
	must(channel_call(&ch, RELIVE__TYPE__TYPE_TABLE_OPEN, &open.base,
			  deadline_after(clock_monotonic(), ANSWER_NS), &frame));
	reply = (Relive__TableReply *)channel_unpack(&relive__table_reply__descriptor, &frame);
	if (!reply)
		abort();
	keep_create(reply);
	relive__table_reply__free_unpacked(reply, NULL);
	channel_fini(&ch);
}

static void forget_files(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", root);
	if (system(command))
		fprintf(stderr, "fuzz_control: %s stays\n", root);
}

static void start(void)
{
	const struct metad_opts server = { .store = STORE, .lease_ns = CLOCK_NS_PER_S };

	if (!mkdtemp(root))
		abort();
	atexit(forget_files);
	setenv("RELIVE_RUNTIME_DIR", root, 1);
	unsetenv("RELIVE_TOKEN");
	must(metad_open(&server, &md));
	dir = md->dir;
	start_node();
	start_thread(run_server);
	must(rlv_store_open("shm:" STORE, NULL, &store));
	must(make_table());
	keep_hello();
	ask_for_table();
	keep_names();
	keep_register();
	keep_others();
}

/* -------- one peer -------- */

struct input {
	const uint8_t *data;
	size_t size;
};

struct session {
	int fd;
	enum peer peer;
	uint64_t asked; /* id of the server's last request */
	uint16_t asked_type;
	uint64_t id;
};

static void connect_raw(struct session *session)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char path[RUNTIME_PATH_BYTES];

	must(runtime_dir_file(&dir, "metad.sock", path));
	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
	session->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (session->fd < 0 || connect(session->fd, (struct sockaddr *)&address, sizeof(address)))
		abort();
}

static void connect_as(struct session *session)
{
	struct dial_peer peer;
	struct channel ch;

	if (session->peer == STRANGER) {
		connect_raw(session);
		return;
	}
	must(dial(session->peer == CLIENT ? "client" : "memnode", &ch, &peer));
	session->fd = dup(ch.stream.fd);
	channel_fini(&ch);
}

/* Reads received frames, and records the server's last request. */
static void listen_to(struct session *session, int timeout_ms)
{
	struct pollfd ready = { .fd = session->fd, .events = POLLIN };
	uint8_t bytes[4096];
	struct frame_header head;
	ssize_t n;

	while (poll(&ready, 1, timeout_ms) > 0) {
		n = recv(session->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (n <= 0)
			return;
		if (frame_decode(bytes, (size_t)n, &head) == 0 && !(head.type & FRAME_ANSWER)) {
			session->asked = head.request_id;
			session->asked_type = head.type;
		}
		timeout_ms = 0;
	}
}

static size_t fill_like_template(uint32_t type, const uint8_t *changes, size_t n, uint8_t *body)
{
	size_t len = template_bytes[type];

	memcpy(body, templates[type], len);
	for (size_t i = 0; len && i + 3 <= n; i += 3)
		body[(changes[i] | (size_t)changes[i + 1] << 8) % len] ^= changes[i + 2];
	return len;
}

/* false: no more. */
static bool say_one(struct session *session, struct input *in)
{
	static uint8_t bytes[FRAME_HEADER_BYTES + 65536];
	struct frame_header head = { .request_id = ++session->id };
	const uint8_t *at = in->data;
	size_t n, len;

	if (in->size < 4)
		return false;
	n = at[2] | (size_t)at[3] << 8;
	n = n < in->size - 4 ? n : in->size - 4;
	len = n;
	head.type = (uint16_t)(1 + at[0] % (TYPES - 1));
	if (at[1] & LIKE_TEMPLATE)
		len = fill_like_template(head.type, at + 4, n, bytes + FRAME_HEADER_BYTES);
	else
		memcpy(bytes + FRAME_HEADER_BYTES, at + 4, n);
	if (at[1] & AS_ANSWER) {
		listen_to(session, LOOK_NS / CLOCK_NS_PER_MS);
		head.type = session->asked_type | FRAME_ANSWER;
		head.request_id = session->asked;
	}
	head.length = (uint32_t)len;
	in->data += 4 + n;
	in->size -= 4 + n;
	if (frame_encode(&head, bytes))
		return true;
	return send(session->fd, bytes, FRAME_HEADER_BYTES + len, MSG_NOSIGNAL) > 0;
}

/* Somebody else is served. */
static void expect_an_answer(void)
{
	struct rlv_store_info info = { .size = sizeof(info) };

	must(rlv_store_info(store, &info));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct session session = { .fd = -1 };
	struct input in = { data + 1, size - 1 };

	if (!md)
		start();
	if (size < 2)
		return 0;
	session.peer = (enum peer)(data[0] % PEERS);
	connect_as(&session);
	for (int i = 0; i < FRAMES_MAX && say_one(&session, &in); i++)
		listen_to(&session, 0);
	if (in.size && session.peer == STRANGER)
		(void)!send(session.fd, in.data, in.size, MSG_NOSIGNAL);
	expect_an_answer();
	listen_to(&session, 0);
	close(session.fd);
	return 0;
}
