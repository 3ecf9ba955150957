/* gpu.c - the first CUDA device, and the paths by which batches come to its memory. */
#include <errno.h>

#include "relive/landing.h"

#include "base/bits.h"
#include "cli/doctor/doctor.h"

static void list_paths(struct doctor *doctor, struct rlv_landing *landing)
{
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;
	struct rlv_landing_path_info paths[8];
	size_t n = ARRAY_LEN(paths);
	int ret = rlv_landing_info(landing, &info);

	if (ret == 0)
		ret = rlv_landing_paths(landing, paths, sizeof(paths[0]), &n);
	if (ret) {
		doctor_found(doctor, FINDING_WARNING, "%s", rlv_last_error());
		return;
	}
	doctor_found(doctor, FINDING_OK,
		     "cuda:%d is %s; batches come by the path %s, with weights of the %s",
		     info.device, info.name, rlv_landing_path_name(info.path),
		     info.weights == RLV_LANDING_WEIGHTS_DEVICE ? "device" : "CPU");
	for (size_t i = 0; i < n && i < ARRAY_LEN(paths); i++)
		if (paths[i].why[0])
			doctor_found(doctor, FINDING_INFO, "path %s: %s%s",
				     rlv_landing_path_name(paths[i].path),
				     paths[i].possible ? "possible; " : "", paths[i].why);
}

void doctor_gpu(struct doctor *doctor)
{
	struct rlv_landing *landing;
	int ret = rlv_landing_open(NULL, &landing);

	if (ret) {
		doctor_found(doctor, ret == -ENOTSUP ? FINDING_INFO : FINDING_WARNING, "%s",
			     rlv_last_error());
		return;
	}
	list_paths(doctor, landing);
	ret = rlv_landing_close(&landing);
	if (ret)
		doctor_found(doctor, FINDING_WARNING, "%s", rlv_last_error());
}
