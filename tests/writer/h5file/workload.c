/* SPDX-License-Identifier: Apache-2.0 */
#include "h5file/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h5file/earliest.h"

#define SERIES 2
#define TIMES  16 /* in a chunk */

static const char *const names[] = {"u", "v"};

struct run {
	struct workload *load;
	volatile unsigned *flushed;
	hid_t file, series[SERIES], times;
};

static float element(unsigned series, hsize_t frame, hsize_t row, hsize_t column)
{
	return 1 + (frame * 8191 + row * 131 + column * 7 + series * 3) % 65521;
}

static hid_t make(hid_t file, const char *name, hid_t type, int rank, const hsize_t *chunk,
                  const hsize_t *frame)
{
	hsize_t most[3] = {H5S_UNLIMITED, frame[1], frame[2]};
	hid_t space = H5Screate_simple(rank, frame, most);
	hid_t properties = H5Pcreate(H5P_DATASET_CREATE), dataset;

	H5Pset_chunk(properties, rank, chunk);
	H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER);
	dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
	H5Pclose(properties);
	H5Sclose(space);
	return dataset;
}

static int write_frame(struct run *run, unsigned s, hsize_t frame)
{
	const struct workload *load = run->load;
	hsize_t extent[3] = {frame + 1, (hsize_t)load->rows * WORKLOAD_EDGE,
	                     (hsize_t)load->columns * WORKLOAD_EDGE};
	unsigned chunks = load->rows * load->columns;
	float bytes[WORKLOAD_EDGE][WORKLOAD_EDGE];

	if (H5Dset_extent(run->series[s], extent) < 0)
		return -1;
	for (unsigned i = 0; i < chunks; i++) {
		/* 7919 has no factor in common with any number of chunks here. */
		unsigned chunk = load->mixed ? (i * 7919u + (unsigned)frame) % chunks : i;
		hsize_t offset[3] = {frame, (hsize_t)(chunk / load->columns) * WORKLOAD_EDGE,
		                     (hsize_t)(chunk % load->columns) * WORKLOAD_EDGE};

		for (unsigned y = 0; y < WORKLOAD_EDGE; y++)
			for (unsigned x = 0; x < WORKLOAD_EDGE; x++)
				bytes[y][x] = element(s, frame, offset[1] + y, offset[2] + x);
		if (H5Dwrite_chunk(run->series[s], H5P_DEFAULT, 0, offset, sizeof(bytes), bytes) <
		    0)
			return -1;
	}
	return 0;
}

static int write_time(struct run *run, hsize_t frame)
{
	hsize_t extent = frame + 1, one = 1;
	double time = frame * 0.5;
	hid_t space, memory;
	herr_t done;

	if (H5Dset_extent(run->times, &extent) < 0)
		return -1;
	space = H5Dget_space(run->times);
	memory = H5Screate_simple(1, &one, NULL);
	H5Sselect_hyperslab(space, H5S_SELECT_SET, &frame, NULL, &one, NULL);
	done = H5Dwrite(run->times, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, &time);
	H5Sclose(memory);
	H5Sclose(space);
	run->load->leaks |= done < 0;
	return done < 0 ? -1 : 0;
}

/* Others may open the file by now: so it is flushed at once. */
static int add_dataset(struct run *run, hsize_t frame)
{
	hsize_t length = 65536;
	hid_t space = H5Screate_simple(1, &length, NULL),
	      properties = H5Pcreate(H5P_DATASET_CREATE);
	char name[32];
	hid_t dataset;

	snprintf(name, sizeof(name), "more_datasets_%llu", (unsigned long long)frame);
	H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY);
	H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER);
	dataset = H5Dcreate2(run->file, name, H5T_NATIVE_UCHAR, space, H5P_DEFAULT, properties,
	                     H5P_DEFAULT);
	H5Pclose(properties);
	H5Sclose(space);
	if (dataset < 0 || H5Dclose(dataset) < 0)
		return -1;
	return H5Fflush(run->file, H5F_SCOPE_GLOBAL) < 0 ? -1 : 0;
}

static int write_frames(struct run *run, unsigned first, unsigned end)
{
	for (unsigned frame = first; frame < end; frame++) {
		if (write_time(run, frame) < 0 || write_frame(run, 0, frame) < 0 ||
		    write_frame(run, 1, frame) < 0)
			return -1;
		if (run->load->adds && frame % 10 == 9 && add_dataset(run, frame) < 0)
			return -1;
		if ((frame + 1) % run->load->every)
			continue;
		if (H5Fflush(run->file, H5F_SCOPE_GLOBAL) < 0)
			return -1;
		*run->flushed = frame + 1;
	}
	return 0;
}

static int make_datasets(struct run *run)
{
	hsize_t rows = (hsize_t)run->load->rows * WORKLOAD_EDGE;
	hsize_t columns = (hsize_t)run->load->columns * WORKLOAD_EDGE;
	hsize_t chunk[] = {1, WORKLOAD_EDGE, WORKLOAD_EDGE}, frame[] = {0, rows, columns};
	hsize_t times[] = {TIMES}, none[] = {0, 0, 0};

	run->times = make(run->file, "time", H5T_NATIVE_DOUBLE, 1, times, none);
	for (unsigned s = 0; s < SERIES; s++)
		run->series[s] = make(run->file, names[s], H5T_NATIVE_FLOAT, 3, chunk, frame);
	return run->times < 0 || run->series[0] < 0 || run->series[1] < 0 ? -1 : 0;
}

static int open_datasets(struct run *run)
{
	run->times = H5Dopen2(run->file, "time", H5P_DEFAULT);
	for (unsigned s = 0; s < SERIES; s++)
		run->series[s] = H5Dopen2(run->file, names[s], H5P_DEFAULT);
	return run->times < 0 || run->series[0] < 0 || run->series[1] < 0 ? -1 : 0;
}

/* The ids may be invalid; HDF5 says so without harm. */
static int end_run(struct run *run)
{
	int bad = 0;

	bad |= run->times >= 0 && H5Dclose(run->times) < 0;
	run->load->leaks |= bad;
	for (unsigned s = 0; s < SERIES; s++)
		bad |= run->series[s] >= 0 && H5Dclose(run->series[s]) < 0;
	bad |= run->file >= 0 && H5Fclose(run->file) < 0;
	return bad ? -1 : 0;
}

int workload_write(struct workload *load, const char *path, volatile unsigned *flushed)
{
	unsigned first = WORKLOAD_FRAMES - load->appended;
	struct run run = {load, flushed, -1, {-1, -1}, -1};
	hid_t fapl, fcpl;
	int done = -1;

	H5dont_atexit();
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	fapl = hdf5_earliest();
	fcpl = H5Pcreate(H5P_FILE_CREATE);
	if (load->node)
		H5Pset_istore_k(fcpl, load->node);
	if (load->adds)
		H5Pset_local_heap_size_hint(fcpl, 1024);
	if (load->sec2 || sl_ordered_vfd_set(fapl, &load->vfd) == 0) {
		run.file = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl);
		if (run.file >= 0 && make_datasets(&run) == 0)
			done = write_frames(&run, 0, first);
		done |= end_run(&run);
	}
	if (done == 0 && load->appended) {
		*flushed = load->vfd.error ? 0 : first;
		run = (struct run){load, flushed, -1, {-1, -1}, -1};
		run.file = H5Fopen(path, H5F_ACC_RDWR, fapl);
		done = run.file >= 0 && open_datasets(&run) == 0
		               ? write_frames(&run, first, WORKLOAD_FRAMES)
		               : -1;
		done |= end_run(&run);
	}
	H5Pclose(fcpl);
	H5Pclose(fapl);
	if (done == 0 && !load->vfd.error)
		*flushed = WORKLOAD_FRAMES;
	H5close();
	return done;
}

/* -------------------------------------------------------------------------------------- look */

static enum sight judge(hsize_t frame, unsigned flushed)
{
	return frame < flushed ? SIGHT_LOST : SIGHT_WRONG;
}

static enum sight look_at_times(hid_t dataset, hsize_t extent, unsigned flushed)
{
	double times[WORKLOAD_FRAMES] = {0};

	if (H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, times) < 0)
		return flushed ? SIGHT_LOST : SIGHT_WRONG;
	for (hsize_t frame = 0; frame < extent; frame++)
		if (times[frame] != frame * 0.5)
			return judge(frame, flushed);
	return SIGHT_RIGHT;
}

static enum sight look_at_series(const struct workload *load, hid_t dataset, unsigned s,
                                 hsize_t extent, unsigned flushed)
{
	hsize_t rows = (hsize_t)load->rows * WORKLOAD_EDGE;
	hsize_t columns = (hsize_t)load->columns * WORKLOAD_EDGE;
	float *all = calloc(extent * rows * columns + 1, sizeof(*all)), *next = all;
	enum sight sight = SIGHT_RIGHT;

	if (H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) < 0)
		sight = flushed ? SIGHT_LOST : SIGHT_WRONG;
	for (hsize_t frame = 0; sight == SIGHT_RIGHT && frame < extent; frame++)
		for (hsize_t y = 0; y < rows; y++)
			for (hsize_t x = 0; x < columns; x++)
				if (*next++ != element(s, frame, y, x) && sight == SIGHT_RIGHT)
					sight = judge(frame, flushed);
	free(all);
	return sight;
}

static enum sight look_at(const struct workload *load, hid_t file, const char *name, int s,
                          unsigned flushed)
{
	hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(dataset);
	hsize_t extent[3] = {0};
	enum sight sight;

	if (H5Sget_simple_extent_dims(space, extent, NULL) < 0 || extent[0] < flushed)
		sight = SIGHT_LOST;
	else if (extent[0] > WORKLOAD_FRAMES)
		sight = SIGHT_WRONG;
	else if (s < 0)
		sight = look_at_times(dataset, extent[0], flushed);
	else
		sight = look_at_series(load, dataset, s, extent[0], flushed);
	H5Sclose(space);
	H5Dclose(dataset);
	return sight;
}

/* All that the file names can be opened. */
static enum sight look_at_names(hid_t file)
{
	H5G_info_t group = {0};
	enum sight sight = H5Gget_info(file, &group) < 0 ? SIGHT_LOST : SIGHT_RIGHT;

	for (hsize_t i = 0; sight == SIGHT_RIGHT && i < group.nlinks; i++) {
		hid_t object =
			H5Oopen_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, H5P_DEFAULT);

		if (object < 0 || H5Oclose(object) < 0)
			sight = SIGHT_LOST;
	}
	return sight;
}

enum sight workload_look(const struct workload *load, const char *path, unsigned flushed)
{
	enum sight sight;
	hid_t file;

	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
	/* Nobody has promised a file before the first flush. */
	if (file < 0)
		return flushed ? SIGHT_CLOSED : SIGHT_RIGHT;
	sight = look_at_names(file);
	if (sight == SIGHT_RIGHT)
		sight = look_at(load, file, "time", -1, flushed);
	for (unsigned s = 0; sight == SIGHT_RIGHT && s < SERIES; s++)
		sight = look_at(load, file, names[s], s, flushed);
	H5Fclose(file);
	return flushed ? sight : SIGHT_RIGHT;
}
