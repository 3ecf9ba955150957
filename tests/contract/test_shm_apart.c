/*
 * test_shm_apart.c - the contract suite over a socket, with the target in another process.
 */
#include "tests/contract/suite/contract.h"
#include "tests/support/fixture/remote_target.h"

int main(int argc, char **argv)
{
	static const struct contract_kind kinds[] = {
		{ .name = "shm apart", .listens = true, .apart = true },
		{ .name = "shm file apart", .listens = true, .apart = true, .in_file = true },
		{ .name = "shm dir apart",
		  .listens = true,
		  .apart = true,
		  .in_file = true,
		  .in_dir = true },
	};

	remote_target_main(argc, argv);
	return contract_run(&kinds[0]) + contract_run(&kinds[1]);
}
