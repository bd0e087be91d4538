/* tier/file/test_uring.c - how the file asks io_uring: what is registered, and what goes through
 * it. (Linked so that these calls come here.) */
#include "tier/file/file_kit.h"

#include "tier/file/io.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, MAX_OPS = 8, MAX_SEEN = 8 };

static uint32_t num_inits;
static unsigned init_flags[MAX_SEEN];
static int init_error; /* of the next one */
static uint32_t num_buffers;
static struct iovec buffers[MAX_SEEN];
static unsigned most_entries;  /* of a ring; 0: as many as are asked for */
static bool is_busy;           /* the system takes nothing */
static bool is_register_faked; /* as where so much memory may be locked */
static int register_result;
static uint8_t last_opcode;
static uint16_t last_buffer;

int __real_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __real_io_uring_register_buffers(struct io_uring *ring, const struct iovec *parts, unsigned n);
int __wrap_io_uring_register_buffers(struct io_uring *ring, const struct iovec *parts, unsigned n);
int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);

int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    int error = init_error;
    init_flags[num_inits++ % MAX_SEEN] = flags;
    init_error = 0;
    entries = most_entries > 0 ? most_entries : entries;
    return error != 0 ? -error : __real_io_uring_queue_init(entries, ring, flags);
}

int __wrap_io_uring_register_buffers(struct io_uring *ring, const struct iovec *parts, unsigned n)
{
    num_buffers = n;
    for (uint32_t i = 0; i < n && i < MAX_SEEN; i++)
        buffers[i] = parts[i];
    register_result = is_register_faked ? 0 : __real_io_uring_register_buffers(ring, parts, n);
    return register_result;
}

int __wrap_io_uring_submit(struct io_uring *ring)
{
    if (is_busy)
        return -EBUSY;
    const struct io_uring_sqe *sqe = &ring->sq.sqes[(ring->sq.sqe_tail - 1) & *ring->sq.kring_mask];
    last_opcode = sqe->opcode;
    last_buffer = sqe->buf_index;
    return __real_io_uring_submit(ring);
}

/* ---- a file with two pages ---------------------------------------------------- */

typedef struct fixture {
    file_kit kit;
    quire_hooks hooks;
    int fd;
    qr_file_io *io;
} fixture;

static void begin(fixture *f)
{
    unsigned char pages[2 * PAGE];
    *f = (fixture){.hooks = QUIRE_HOOKS_INIT};
    kit_begin(&f->kit, 8, KIT_BLOCK);
    f->fd = open(f->kit.path, O_RDWR | O_CREAT, 0600);
    kit_fill(pages, sizeof pages, 5);
    assert_int_equal(pwrite(f->fd, pages, sizeof pages, 0), (ssize_t)sizeof pages);
    num_inits = num_buffers = 0;
    init_error = 0;
    most_entries = 0;
    is_busy = is_register_faked = false;
}

static void end(fixture *f)
{
    if (f->io != NULL)
        assert_true(f->io->close(f->io, 1000));
    close(f->fd);
    kit_end(&f->kit);
}

/* Skips the test where the system has no io_uring for us. */
static void open_ring(fixture *f, const qr_file_region *regions, uint32_t num_regions)
{
    int result = qr_file_uring_open(f->fd, MAX_OPS, regions, num_regions, &f->hooks, &f->io);
    if (result == -ENOSYS || result == -EPERM || result == -ENOMEM) {
        end(f);
        skip();
    }
    assert_int_equal(result, 0);
    assert_string_equal(f->io->name, "io_uring");
}

/* The result of a read from the beginning of the file. */
static int64_t read_into(fixture *f, void *memory, uint32_t bytes)
{
    qr_file_op op = {.kind = QR_FILE_READ, .memory = memory, .bytes = bytes, .tag = 3};
    qr_file_op *ended[1];
    f->io->submit(f->io, &op);
    (void)f->io->wait(f->io, -1, 0, NULL, 0); /* begins it */
    assert_int_equal(f->io->wait(f->io, -1, 5000, ended, 1), 1);
    assert_ptr_equal(ended[0], &op);
    return op.result;
}

static void expect_pages(fixture *f, unsigned char *memory, uint32_t bytes, int opcode)
{
    unsigned char pages[2 * PAGE];
    kit_fill(pages, sizeof pages, 5);
    memset(memory, 0, bytes);
    assert_int_equal(read_into(f, memory, bytes), bytes);
    assert_memory_equal(memory, pages, bytes);
    assert_int_equal(last_opcode, opcode);
}

/* ---- what is asked ------------------------------------------------------------ */

/* Each region that is memory is registered; what lies in one is read without being looked up. */
static void test_regions(void **state)
{
    fixture f;
    (void)state;
    begin(&f);
    unsigned char *memory = f.kit.memory;
    const qr_file_region regions[] = {{.memory = memory, .bytes = 2 * PAGE},
                                      {.memory = NULL, .bytes = PAGE},
                                      {.memory = memory + 3 * PAGE, .bytes = 0},
                                      {.memory = memory + 4 * PAGE, .bytes = PAGE}};
    open_ring(&f, regions, 4);
    assert_int_equal(num_buffers, 2);
    assert_ptr_equal(buffers[0].iov_base, memory);
    assert_int_equal(buffers[0].iov_len, 2 * PAGE);
    assert_ptr_equal(buffers[1].iov_base, memory + 4 * PAGE);
    assert_int_equal(buffers[1].iov_len, PAGE);
    if (register_result == -ENOMEM || register_result == -EPERM) { /* nothing may be locked */
        end(&f);
        skip();
    }
    expect_pages(&f, memory, 2 * PAGE, IORING_OP_READ_FIXED);
    assert_int_equal(last_buffer, 0);
    expect_pages(&f, memory + 4 * PAGE, PAGE, IORING_OP_READ_FIXED);
    assert_int_equal(last_buffer, 1);
    expect_pages(&f, memory + PAGE, 2 * PAGE, IORING_OP_READ); /* over its end */
    expect_pages(&f, memory + 6 * PAGE, PAGE, IORING_OP_READ);
    end(&f);
}

/* The system registers at most 1 GiB as one: a read across two of these goes without. */
static void test_across_two_buffers(void **state)
{
    const size_t most = (size_t)1 << 30;
    fixture f;
    (void)state;
    begin(&f);
    is_register_faked = true;
    unsigned char *memory =
        mmap(NULL, most + 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + most - PAGE, 2 * PAGE, PROT_READ | PROT_WRITE), 0);
    const qr_file_region region = {.memory = memory, .bytes = most + 4 * PAGE};
    open_ring(&f, &region, 1);
    assert_int_equal(num_buffers, 2);
    assert_int_equal(buffers[0].iov_len, most);
    assert_ptr_equal(buffers[1].iov_base, memory + most);
    assert_int_equal(buffers[1].iov_len, 4 * PAGE);
    expect_pages(&f, memory + most - PAGE, 2 * PAGE, IORING_OP_READ);
    (void)read_into(&f, memory + most - PAGE, PAGE);
    assert_int_equal(last_opcode, IORING_OP_READ_FIXED);
    assert_int_equal(last_buffer, 0);
    (void)read_into(&f, memory + most, PAGE);
    assert_int_equal(last_opcode, IORING_OP_READ_FIXED);
    assert_int_equal(last_buffer, 1);
    end(&f);
    (void)munmap(memory, most + (size_t)4 * PAGE);
}

/* Reports do not interrupt the thread, where the system has that choice; else the ring does
 * without. */
static void test_older_system(void **state)
{
    static unsigned char page[PAGE];
    (void)state;
    for (uint32_t is_older = 0; is_older < 2; is_older++) {
        fixture f;
        begin(&f);
        init_error = is_older ? EINVAL : 0;
        open_ring(&f, NULL, 0);
        assert_int_equal(init_flags[0], IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
        assert_true(!is_older || (num_inits == 2 && init_flags[1] == 0));
        assert_int_equal(num_buffers, 0);
        expect_pages(&f, page, PAGE, IORING_OP_READ);
        end(&f);
    }
}

/* A ring that is full, while the system takes nothing of it: what does not fit ends with EAGAIN,
 * each once, and the rest is done when the system is ready. */
static void test_full_ring(void **state)
{
    enum { ENTRIES = 4, REFUSED = 3, NUM = ENTRIES + REFUSED };
    fixture f;
    qr_file_op ops[NUM];
    qr_file_op *ended[NUM + 1];
    uint32_t num_ended[NUM] = {0};
    (void)state;
    begin(&f);
    most_entries = ENTRIES;
    open_ring(&f, NULL, 0);
    is_busy = true;
    for (uint32_t i = 0; i < NUM; i++) {
        ops[i] = (qr_file_op){.kind = QR_FILE_READ,
                              .memory = (unsigned char *)f.kit.memory + (size_t)i * PAGE,
                              .bytes = PAGE,
                              .tag = i};
        f.io->submit(f.io, &ops[i]);
    }
    assert_int_equal(f.io->num_in_flight, NUM);
    assert_int_equal(f.io->wait(f.io, -1, 5000, ended, 1), 1); /* at most so many at a time */
    assert_int_equal(f.io->wait(f.io, -1, 5000, ended + 1, NUM), REFUSED - 1);
    assert_int_equal(f.io->num_in_flight, ENTRIES);
    is_busy = false;
    uint32_t n = REFUSED;
    for (uint32_t turns = 0; n < NUM && turns < 100; turns++) {
        (void)f.io->wait(f.io, -1, 0, NULL, 0);
        n += f.io->wait(f.io, -1, 5000, ended + n, NUM - n);
    }
    assert_int_equal(n, NUM);
    assert_int_equal(f.io->num_in_flight, 0);
    for (uint32_t i = 0; i < NUM; i++)
        num_ended[ended[i]->tag]++;
    for (uint32_t i = 0; i < NUM; i++) {
        assert_int_equal(num_ended[i], 1);
        assert_int_equal(ops[i].result, i < ENTRIES ? PAGE : -EAGAIN);
    }
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_across_two_buffers),
        cmocka_unit_test(test_older_system),
        cmocka_unit_test(test_full_ring),
    };
    return cmocka_run_group_tests_name("a file through io_uring", tests, NULL, NULL);
}
