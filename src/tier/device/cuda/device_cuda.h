/* tier/device/cuda/device_cuda.h - a device over a GPU, inside.
 *
 *      submit: wait for the mark, copies [, CRC beside them], event ──► queue of its direction
 *      poll:   the first of each queue whose event has come
 *
 * Each direction is one stream, so its jobs end in order. A mark is an event in the engine's
 * stream; there are NUM_MARKS of them in turn, and whoever waits for an older one waits for the one
 * that took its place, which is behind it.
 *
 *      free_slots + queued (stores) + queued (loads) == max_jobs
 */
#ifndef QR_TIER_DEVICE_CUDA_DEVICE_CUDA_H
#define QR_TIER_DEVICE_CUDA_DEVICE_CUDA_H

#include "tier/device/cuda/stage.h"

enum { QR_NUM_MARKS = 256, QR_NUM_AREAS = 32, QR_NUM_STREAMS = 3 };
enum { QR_STREAM_STORE = 0, QR_STREAM_LOAD = 1, QR_STREAM_CRC = 2 };

typedef struct qr_cuda_queue {
    uint32_t *slots; /* max_jobs, in a ring */
    uint64_t first;
    uint64_t last; /* one behind */
} qr_cuda_queue;

typedef struct qr_cuda_device {
    quire_cuda *cuda;
    qr_cuda_map map;
    qr_cuda_copier copier;
    qr_cuda_stage stage; /* of the method STAGED */
    uint32_t crc_parts;
    quire_cuda_crc crc;
    uint32_t num_slots;
    uint32_t max_jobs;
    uint32_t max_copies;
    uint32_t max_pieces;
    uint64_t max_bytes;
    uint64_t pieces_in_flight;   /* that the copy engine has */
    uint64_t bytes_in_flight[2]; /* the same, of stores and of loads */
    bool ignores_marks;
    bool has_pinned_slots; /* pinned here: to be given back */
    /* jobs */
    quire_device_job **jobs;
    uint32_t *free_slots;
    uint32_t num_free;
    qr_cuda_queue queues[2];
    qr_cu_event *done; /* of a slot */
    /* marks */
    uint64_t last_mark;
    qr_cu_event marks[QR_NUM_MARKS];
    qr_cu_event crc_done;
    qr_cu_stream streams[QR_NUM_STREAMS];
    /* pinned: pairs and CRCs of each job's slot, then the areas of copies between blocks */
    void *pinned;
    qr_block_pair *pairs;
    qr_cu_address pairs_address;
    uint32_t *crcs;
    qr_cu_address crcs_address;
    qr_block_pair *areas;
    qr_cu_address areas_address;
    qr_cu_event area_done[QR_NUM_AREAS];
    uint32_t next_area;
    bool is_area_used[QR_NUM_AREAS];
    quire_device_cuda_stats stats;
    qr_owner owner;
} qr_cuda_device;

extern const quire_device_ops QR_CUDA_OPS;

/* Of a quire_device that is one of these; NULL else. */
qr_cuda_device *qr_cuda_device_of(const quire_device *device);
/* Gives back all that it has of the GPU, and itself. */
void qr_cuda_device_release(qr_cuda_device *d);

#endif
