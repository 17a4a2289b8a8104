/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a device that several processes have. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "device/device_sharing_peer.h"
#include "sluice/emulated.h"

/* What the device's memory is shared by. */
static struct sl_device *device, *second;
static const struct sl_device_sharing *sharing;
static size_t whole; /* the least that is shared: its granularity */

struct before {
	uint64_t in_use;
	size_t descriptors;
};

/* Nobody else uses emulated devices of this session. On a GPU others may run: there gpu_check looks. */
static uint64_t memory_in_use(void)
{
	uint64_t bytes = 0;

	if (!gpu_is_real())
		assert_int_equal(gpu_in_use(0, &bytes), 0);
	return bytes;
}

static int setup(void **state)
{
	struct before *before = calloc(1, sizeof(*before));

	before->descriptors = count_descriptors();
	before->in_use = memory_in_use();
	*state = before;
	return 0;
}

static int teardown(void **state)
{
	struct before *before = *state;

	assert_int_equal(memory_in_use(), before->in_use);
	if (count_descriptors() != before->descriptors)
		print_belongings();
	assert_int_equal(count_descriptors(), before->descriptors);
	free(before);
	return 0;
}

/* Another process makes it; -1 for fd: nothing came. */
static void have_made(struct peer *peer, size_t length, uint64_t seed, int *fd)
{
	struct peer_message message = {.order = PEER_MAKE, .length = length, .seed = seed};

	*fd = -1;
	assert_int_equal(peer_do(peer, &message, fd), 0);
	assert_true(*fd >= 0);
}

static void *make_here(size_t length, uint64_t seed, int *fd)
{
	void *memory = NULL;

	assert_int_equal(sharing->make(device, length, &memory, fd), 0);
	/* No program that this one starts keeps the memory. */
	assert_int_equal(fcntl(*fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(put_pattern(memory, length, seed), 0);
	return memory;
}

static void *map_here(int fd, size_t length)
{
	void *memory = NULL;

	assert_int_equal(sharing->map(device, fd, length, device, NULL, &memory), 0);
	return memory;
}

static void unmap_here(void *memory, size_t length)
{
	assert_int_equal(sharing->unmap(device, memory, length), 0);
}

/* ------------------------------------------------------------------------------- make and map */

TEST_WITH(memory_outlives_the_process_that_made_it, setup, teardown)
{
	const struct before *before = *state;
	struct peer maker, reader;
	struct peer_message message = {.order = PEER_READ, .length = 2 * whole, .seed = 7};
	void *memory;
	int fd, sent;

	peer_start(&maker);
	have_made(&maker, 2 * whole, 7, &fd);
	peer_kill(&maker);
	if (!gpu_is_real())
		assert_int_equal(memory_in_use(), before->in_use + 2 * whole);
	/* Here, and in a third process. */
	memory = map_here(fd, 2 * whole);
	assert_ptr_equal(sl_device_of_memory(memory), device);
	assert_ptr_equal(sl_device_of_memory((char *)memory + 2 * whole - 1), device);
	assert_int_equal(check_pattern(memory, 2 * whole, 7), 0);
	peer_start(&reader);
	sent = fd;
	assert_int_equal(peer_do(&reader, &message, &sent), 0);
	peer_end(&reader);
	/* The mapping needs no descriptor. */
	close(fd);
	assert_int_equal(check_pattern(memory, 2 * whole, 7), 0);
	unmap_here(memory, 2 * whole);
	assert_null(sl_device_of_memory(memory));
}

TEST_WITH(writing_through_the_maker_is_seen_by_others, setup, teardown)
{
	struct peer_message message = {.order = PEER_WRITE, .length = whole, .seed = 2};
	struct peer maker;
	void *memory;
	int fd;

	peer_start(&maker);
	have_made(&maker, whole, 1, &fd);
	memory = map_here(fd, whole);
	assert_int_equal(check_pattern(memory, whole, 1), 0);
	assert_int_equal(peer_do(&maker, &message, NULL), 0);
	assert_int_equal(check_pattern(memory, whole, 2), 0);
	unmap_here(memory, whole);
	close(fd);
	peer_end(&maker);
}

TEST_WITH(mapped_blob_cannot_be_written_to, setup, teardown)
{
	unsigned char bytes[64] = {0};
	struct sl_command command;
	sluice_stream stream;
	void *made, *memory, *pinned;
	size_t taken = 7;
	int fd;

	made = make_here(whole, 3, &fd);
	memory = map_here(fd, whole);
	assert_int_equal(sluice_pinned_alloc(gpu_device(0), 4096, &pinned), 0);
	memset(pinned, 0, 4096);
	assert_int_equal(sluice_stream_new(gpu_device(0), &stream), 0);
	assert_true(sluice_copy(memory, bytes, sizeof(bytes)) < 0);
	assert_true(sluice_copy((char *)memory + whole - 64, made, sizeof(bytes)) < 0);
	assert_true(sluice_copy_on(memory, pinned, 4096, stream) < 0);
	command = (struct sl_command){.kind = SL_COPY, .copy = {memory, pinned, 4096}};
	assert_true(device->ops->enqueue(device, stream, &command, 1, &taken) < 0);
	assert_int_equal(taken, 0);
	/* The device goes on, and the bytes are what they were. */
	assert_int_equal(sluice_stream_synchronize(gpu_device(0), stream), 0);
	assert_int_equal(check_pattern(memory, whole, 3), 0);
	assert_int_equal(put_pattern(made, whole, 4), 0);
	assert_int_equal(check_pattern(memory, whole, 4), 0);
	assert_int_equal(sluice_stream_free(stream), 0);
	assert_int_equal(sluice_pinned_free(pinned), 0);
	unmap_here(memory, whole);
	unmap_here(made, whole);
	close(fd);
}

TEST_WITH(process_maps_the_same_memory_several_times, setup, teardown)
{
	void *made, *memory[3];
	int fd;

	made = make_here(whole, 5, &fd);
	for (int i = 0; i < 3; i++)
		memory[i] = map_here(fd, whole);
	close(fd);
	unmap_here(made, whole);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(check_pattern(memory[i], whole, 5), 0);
		unmap_here(memory[i], whole);
	}
}

TEST_WITH(lengths_are_multiples_of_the_granularity, setup, teardown)
{
	static const int parts[] = {0, 1, 4096};
	void *made, *memory = NULL;
	int fd = -1;

	for (size_t i = 0; i < COUNT_OF(parts); i++)
		assert_int_equal(sharing->make(device, (size_t)parts[i], &memory, &fd), -EINVAL);
	assert_int_equal(sharing->make(device, whole + 4096, &memory, &fd), -EINVAL);
	assert_int_equal(sharing->make(device, SIZE_MAX / whole * whole, &memory, &fd), -ENOMEM);
	assert_null(memory);
	assert_int_equal(fd, -1);
	made = make_here(2 * whole, 6, &fd);
	assert_int_equal(sharing->map(device, fd, 0, device, NULL, &memory), -EINVAL);
	assert_int_equal(sharing->map(device, fd, whole + 4096, device, NULL, &memory), -EINVAL);
	assert_null(memory);
	/* Nor is a part of it to be had. */
	assert_int_equal(sharing->map(device, fd, whole, device, NULL, &memory), -EBADMSG);
	assert_null(memory);
	unmap_here(made, 2 * whole);
	close(fd);
}

static int memfd_of(const char *name, size_t length, int seals)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)length), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void assert_no_memory(int fd, size_t length)
{
	void *memory = NULL;

	assert_int_equal(sharing->map(device, fd, length, device, NULL, &memory), -EBADMSG);
	assert_null(memory);
}

TEST_WITH(a_descriptor_of_something_else_is_refused, setup, teardown)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int fds[16], pair[2], count = 0;
	size_t length = whole;

	assert_int_equal(pipe(pair), 0);
	fds[count++] = pair[0];
	fds[count++] = pair[1];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	fds[count++] = pair[0];
	fds[count++] = pair[1];
	fds[count++] = eventfd(0, 0);
	fds[count++] = open("/dev/null", O_RDWR);
	fds[count++] = open("/dev/zero", O_RDWR);
	fds[count++] = open("/proc/self/exe", O_RDONLY);
	fds[count++] = open("/", O_RDONLY | O_DIRECTORY);
	fds[count++] = open("/proc/self/exe", O_PATH);
	fds[count++] = memfd_of("memory", length, seals);
	/* Named as memory of the device, which can still lose its end. */
	fds[count++] = memfd_of("sluice:emulated:0:1", length, F_SEAL_GROW);
	for (int i = 0; i < count; i++) {
		assert_true(fds[i] >= 0);
		assert_no_memory(fds[i], length);
		close(fds[i]);
	}
	assert_no_memory(-1, length);
	assert_no_memory(999999, length);
}

TEST_WITH(a_descriptor_of_less_memory_is_refused, setup, teardown)
{
	void *made, *memory;
	int fd;

	made = make_here(whole, 8, &fd);
	assert_no_memory(fd, 2 * whole);
	assert_no_memory(fd, (size_t)1 << 40);
	memory = map_here(fd, whole);
	unmap_here(memory, whole);
	unmap_here(made, whole);
	close(fd);
}

TEST_WITH(only_what_was_mapped_is_unmapped, setup, teardown)
{
	void *made, *allocated;
	char *bytes;
	int fd;

	made = make_here(2 * whole, 9, &fd);
	bytes = made;
	close(fd);
	assert_int_equal(sluice_device_alloc(gpu_device(0), 2 * whole, &allocated), 0);
	assert_true(sharing->unmap(device, made, whole) < 0);
	assert_true(sharing->unmap(device, made, 0) < 0);
	assert_true(sharing->unmap(device, bytes + whole, whole) < 0);
	assert_true(sharing->unmap(device, allocated, 2 * whole) < 0);
	assert_true(sharing->unmap(device, &fd, whole) < 0);
	assert_true(sharing->unmap(device, NULL, whole) < 0);
	assert_true(sharing->give_back(device, made) < 0);
	assert_true(sluice_device_free(made) < 0);
	assert_int_equal(check_pattern(made, 2 * whole, 9), 0);
	unmap_here(made, 2 * whole);
	assert_true(sharing->unmap(device, made, 2 * whole) < 0);
	assert_int_equal(sluice_device_free(allocated), 0);
}

/* ----------------------------------------------------------------------------- lend and borrow */

TEST_WITH(lent_memory_is_the_same_memory_elsewhere, setup, teardown)
{
	struct peer_message order = {.order = PEER_ALLOC, .length = 3 * MIB + 17, .seed = 11};
	struct peer_message lend = {.order = PEER_LEND, .offset = MIB};
	struct peer_message check = {.order = PEER_CHECK, .length = order.length, .seed = 12};
	struct peer_message release = {.order = PEER_FREE};
	struct peer lender;
	void *memory = NULL, *again = NULL;

	peer_start(&lender);
	assert_int_equal(peer_do(&lender, &order, NULL), 0);
	assert_int_equal(peer_do(&lender, &lend, NULL), 0);
	assert_true(lend.lent.length >= order.length);
	assert_non_null(lend.lent.start);
	assert_int_equal(sharing->borrow(device, &lend.lent, &memory), 0);
	assert_ptr_equal(sl_device_of_memory(memory), device);
	assert_int_equal(check_pattern(memory, order.length, 11), 0);
	/* Both ways. */
	assert_int_equal(put_pattern(memory, order.length, 12), 0);
	assert_int_equal(peer_do(&lender, &check, NULL), 0);
	assert_int_equal(sharing->borrow(device, &lend.lent, &again), 0);
	assert_int_equal(check_pattern(again, order.length, 12), 0);
	assert_int_equal(sharing->give_back(device, again), 0);
	assert_int_equal(check_pattern(memory, order.length, 12), 0);
	assert_int_equal(sharing->give_back(device, memory), 0);
	assert_true(sharing->give_back(device, memory) < 0);
	/* Not more than there is, whatever is said. */
	lend.lent.length += 64 * MIB;
	assert_int_equal(sharing->borrow(device, &lend.lent, &memory), -EBADMSG);
	assert_int_equal(peer_do(&lender, &release, NULL), 0);
	peer_end(&lender);
}

TEST_WITH(lent_memory_is_gone_with_its_process, setup, teardown)
{
	struct peer_message order = {.order = PEER_ALLOC, .length = whole, .seed = 13};
	struct peer_message lend = {.order = PEER_LEND};
	struct peer lender;
	void *memory = NULL;

	peer_start(&lender);
	assert_int_equal(peer_do(&lender, &order, NULL), 0);
	assert_int_equal(peer_do(&lender, &lend, NULL), 0);
	peer_kill(&lender);
	assert_int_equal(sharing->borrow(device, &lend.lent, &memory), -ENOENT);
	assert_null(memory);
}

TEST_WITH(lent_memory_is_gone_when_it_is_freed, setup, teardown)
{
	struct peer_message order = {.order = PEER_ALLOC, .length = whole, .seed = 13};
	struct peer_message lend = {.order = PEER_LEND}, release = {.order = PEER_FREE};
	struct peer_message other = lend;
	struct peer lender;
	void *memory = NULL;

	peer_start(&lender);
	assert_int_equal(peer_do(&lender, &order, NULL), 0);
	assert_int_equal(peer_do(&lender, &lend, NULL), 0);
	assert_int_equal(peer_do(&lender, &release, NULL), 0);
	assert_true(sharing->borrow(device, &lend.lent, &memory) < 0);
	/* Not even where other memory took the place. */
	assert_int_equal(peer_do(&lender, &order, NULL), 0);
	assert_int_equal(peer_do(&lender, &other, NULL), 0);
	if (!gpu_is_real())
		assert_int_equal(sharing->borrow(device, &lend.lent, &memory), -ENOENT);
	assert_null(memory);
	peer_end(&lender);
}

TEST_WITH(invented_lease_is_not_borrowed, setup, teardown)
{
	struct sl_lent_memory lent = {.start = NULL, .length = whole};
	void *memory = NULL;

	for (unsigned seed = 0; seed < 20; seed++) {
		pattern_fill(lent.handle, sizeof(lent.handle), 0, seed);
		assert_true(sharing->borrow(device, &lent, &memory) < 0);
	}
	memset(lent.handle, 0, sizeof(lent.handle));
	assert_true(sharing->borrow(device, &lent, &memory) < 0);
	assert_null(memory);
}

TEST_WITH(a_process_does_not_borrow_from_itself, setup, teardown)
{
	struct sl_lent_memory lent;
	void *memory, *borrowed = NULL;

	assert_int_equal(sluice_device_alloc(gpu_device(0), whole, &memory), 0);
	assert_int_equal(put_pattern(memory, whole, 14), 0);
	assert_int_equal(sharing->lend(device, (char *)memory + 100, &lent), 0);
	assert_ptr_equal(lent.start, memory);
	assert_int_equal(check_pattern(memory, whole, 14), 0);
	assert_int_equal(sharing->borrow(device, &lent, &borrowed), -EINVAL);
	assert_null(borrowed);
	assert_int_equal(sluice_device_free(memory), 0);
}

TEST_WITH(shared_and_host_memory_is_not_lent, setup, teardown)
{
	struct sl_lent_memory lent;
	void *made, *memory, *pinned;
	int fd;

	made = make_here(whole, 15, &fd);
	memory = map_here(fd, whole);
	close(fd);
	assert_int_equal(sluice_pinned_alloc(gpu_device(0), 4096, &pinned), 0);
	assert_int_equal(sharing->lend(device, made, &lent), -ENOTSUP);
	assert_int_equal(sharing->lend(device, memory, &lent), -ENOTSUP);
	assert_int_equal(sharing->lend(device, pinned, &lent), -ENOTSUP);
	assert_int_equal(sharing->lend(device, &fd, &lent), -ENOTSUP);
	assert_int_equal(sharing->lend(device, NULL, &lent), -ENOTSUP);
	assert_int_equal(sluice_pinned_free(pinned), 0);
	unmap_here(memory, whole);
	unmap_here(made, whole);
}

/* --------------------------------------------------------------------------------- two devices */

TEST_WITH(another_device_reads_what_it_can_reach, setup, teardown)
{
	void *made, *memory = NULL, *there, *pinned;
	sluice_stream stream;
	int fd, rc;

	if (!gpu_has_two())
		SKIP("there is one device");
	made = make_here(whole, 16, &fd);
	rc = sharing->map(device, fd, whole, second, NULL, &memory);
	if (rc == -ENOTSUP && gpu_is_real()) {
		unmap_here(made, whole);
		close(fd);
		SKIP("the devices do not reach each other");
	}
	assert_int_equal(rc, 0);
	assert_ptr_equal(sl_device_of_memory(memory), device);
	assert_int_equal(sluice_device_alloc(gpu_device(1), whole, &there), 0);
	assert_int_equal(sluice_pinned_alloc(gpu_device(1), 4096, &pinned), 0);
	assert_int_equal(sluice_stream_new(gpu_device(1), &stream), 0);
	assert_int_equal(sluice_copy_on(there, memory, whole, stream), 0);
	assert_int_equal(sluice_stream_synchronize(gpu_device(1), stream), 0);
	assert_int_equal(check_pattern(there, whole, 16), 0);
	assert_true(sluice_copy_on(memory, pinned, 4096, stream) < 0);
	assert_int_equal(check_pattern(memory, whole, 16), 0);
	assert_int_equal(sluice_stream_free(stream), 0);
	assert_int_equal(sluice_pinned_free(pinned), 0);
	assert_int_equal(sluice_device_free(there), 0);
	unmap_here(memory, whole);
	unmap_here(made, whole);
	close(fd);
}

TEST_WITH(memory_of_another_device_is_refused, setup, teardown)
{
	void *made, *memory = NULL;
	int fd;

	if (!gpu_has_two())
		SKIP("there is one device");
	made = make_here(whole, 17, &fd);
	assert_int_equal(second->sharing->map(second, fd, whole, second, NULL, &memory), -EBADMSG);
	assert_null(memory);
	unmap_here(made, whole);
	close(fd);
}

TEST_WITH(a_device_of_another_kind_cannot_reach_it, setup, teardown)
{
	struct sl_device *other = sl_device_find(0);
	void *made, *memory = NULL;
	int fd;

	for (unsigned i = 0; other && other->ops == device->ops; i++)
		other = sl_device_find(i);
	if (!other)
		SKIP("there are devices of one kind only");
	made = make_here(whole, 18, &fd);
	assert_int_equal(sharing->map(device, fd, whole, other, NULL, &memory), -ENOTSUP);
	assert_null(memory);
	unmap_here(made, whole);
	close(fd);
}

/* ------------------------------------------------------------------------- what it waits for */

struct unmapping {
	void *memory;
	int rc;
	_Atomic bool done;
};

static void *run_unmap(void *argument)
{
	struct unmapping *unmapping = argument;

	unmapping->rc = sharing->unmap(device, unmapping->memory, whole);
	atomic_store(&unmapping->done, true);
	return NULL;
}

/* The stream waits, then copies from the mapping; meanwhile the mapping is unmapped. */
static void unmap_under(int which)
{
	struct unmapping unmapping = {0};
	struct gpu_hold hold;
	sluice_stream stream;
	pthread_t thread;
	void *made, *there;
	int fd;

	made = make_here(whole, 19, &fd);
	assert_int_equal(sharing->map(device, fd, whole, device_of(which), NULL, &unmapping.memory),
	                 0);
	close(fd);
	assert_int_equal(sluice_device_alloc(gpu_device(which), whole, &there), 0);
	assert_int_equal(sluice_stream_new(gpu_device(which), &stream), 0);
	assert_int_equal(gpu_hold(which, stream, &hold), 0);
	assert_int_equal(sluice_copy_on(there, unmapping.memory, whole, stream), 0);
	assert_int_equal(pthread_create(&thread, NULL, run_unmap, &unmapping), 0);
	sleep_ms(50);
	assert_false(atomic_load(&unmapping.done));
	gpu_let_go(&hold);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(unmapping.rc, 0);
	assert_int_equal(sluice_stream_synchronize(gpu_device(which), stream), 0);
	assert_int_equal(check_pattern(there, whole, 19), 0);
	assert_int_equal(sluice_stream_free(stream), 0);
	assert_int_equal(sluice_device_free(there), 0);
	unmap_here(made, whole);
}

TEST_WITH(unmapping_waits_for_what_uses_the_memory, setup, teardown)
{
	if (gpu_is_real())
		SKIP("what a driver waits for is measured by probe_sharing");
	unmap_under(0);
	unmap_under(1);
}

TEST_WITH(failed_calls_leave_nothing, setup, teardown)
{
	struct sluice_device was = {.size = sizeof(was)}, is = {.size = sizeof(is)};
	void *made, *memory = NULL, *none = NULL;
	int fd, no_fd = -1;

	if (gpu_is_real())
		SKIP("a driver's calls do not fail on demand");
	assert_int_equal(sluice_device_describe(gpu_device(0), &was), 0);
	sluice_emulated_fail(SLUICE_EMULATED_SHARE, 1, -ENOMEM);
	assert_int_equal(sharing->make(device, whole, &none, &no_fd), -ENOMEM);
	made = make_here(whole, 20, &fd);
	sluice_emulated_fail(SLUICE_EMULATED_SHARE, 1, -EIO);
	assert_int_equal(sharing->map(device, fd, whole, second, NULL, &none), -EIO);
	assert_null(none);
	assert_int_equal(no_fd, -1);
	memory = map_here(fd, whole);
	close(fd);
	sluice_emulated_fail(SLUICE_EMULATED_UNMAP, 1, -EIO);
	assert_int_equal(sharing->unmap(device, memory, whole), -EIO);
	assert_int_equal(check_pattern(memory, whole, 20), 0);
	unmap_here(memory, whole);
	unmap_here(made, whole);
	assert_int_equal(sluice_device_describe(gpu_device(0), &is), 0);
	assert_int_equal(is.free_bytes, was.free_bytes);
}

TEST_WITH(a_lost_device_lets_go_of_what_it_has, setup, teardown)
{
	void *made, *memory = NULL, *none = NULL;
	int fd;

	if (gpu_is_real())
		SKIP("a real device is not lost on demand");
	made = make_here(whole, 21, &fd);
	assert_int_equal(sharing->map(device, fd, whole, second, NULL, &memory), 0);
	sluice_emulated_lose(gpu_device(0), 1);
	assert_int_equal(sharing->map(device, fd, whole, device, NULL, &none), -EIO);
	assert_int_equal(sharing->unmap(device, memory, whole), -EIO);
	assert_int_equal(sharing->unmap(device, made, whole), -EIO);
	sluice_emulated_lose(gpu_device(0), 0);
	assert_null(sl_device_of_memory(memory));
	assert_null(sl_device_of_memory(made));
	close(fd);
}

static int skip_all(const char *why)
{
	printf("skipped: %s\n", why);
	return 77;
}

int main(int argc, char **argv)
{
	peer_main(argc, argv);
	if (gpu_open(NULL))
		return skip_all(gpu_message());
	device = device_of(0);
	second = device_of(1);
	sharing = device->sharing;
	if (!sharing)
		return skip_all("the device's memory cannot be shared");
	whole = sharing->granularity;
	return RUN_TESTS(NULL, NULL);
}
