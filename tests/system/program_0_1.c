/* SPDX-License-Identifier: Apache-2.0 */
/* A program of version 0.1, with the names that 0.2 has no more: headers_test.sh compiles it with -include sluice/compat.h. */
#include <sluice/frames.h>
#include <sluice/sluice.h>
#include <sluice/store.h>
#include <sluice/tensors.h>
#include <sluice/writer.h>

extern unsigned long use_shapes(uint64_t frame[SLUICE_RANK_MOST],
                                uint64_t tensor[SLUICE_TENSOR_RANK]);

int move(sluice_context *ctx, sluice_file *file, const struct sluice_extent *v,
         sluice_stream stream)
{
	sluice_op *op;
	int rc = sluice_readv(file, v, 1, &op);

	rc |= sluice_writev(file, v, 1, &op);
	rc |= sluice_readv_on(file, v, 1, stream, &op);
	rc |= sluice_writev_on(file, v, 1, stream, &op);
	rc |= sluice_next_done(ctx, 0, &op);
	return rc | sluice_done_fd(ctx);
}

int finish(sluice_context *ctx, sluice_list *list, sluice_tensors *tensors, sluice_watch *watch,
           sluice_frames *frames)
{
	sluice_list_close(list);
	sluice_tensors_close(tensors);
	sluice_watch_close(watch);
	sluice_frames_close(frames);
	return sluice_context_free(ctx);
}
