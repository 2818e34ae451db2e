/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory. It owns whole pages and shares none with the allocator's data.
 *
 * Thread: any; one object is used by one thread at a time.
 */
#include "client/buffer.h"

#include <errno.h>
#include <sys/mman.h>

#include "common/verbs.h"

int buffer_init(struct buffer *buffer, struct ibv_pd *pd, size_t len_bytes)
{
	struct ibv_mr *mr;
	void *bytes;
	int r;

	bytes = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bytes == MAP_FAILED)
		return -errno;
	/* A device that writes here must go on to meet our pages, not the copy of a child. */
	(void)madvise(bytes, len_bytes, MADV_DONTFORK);
	r = verbs_reg_mr(pd, bytes, len_bytes, IBV_ACCESS_LOCAL_WRITE, &mr);
	if (r < 0) {
		(void)munmap(bytes, len_bytes);
		return r;
	}
	*buffer = (struct buffer){.bytes = bytes, .len_bytes = len_bytes, .mr = mr};
	return 0;
}

void buffer_deinit(struct buffer *buffer)
{
	if (buffer->bytes != NULL && verbs_dereg_mr(buffer->mr) == 0)
		(void)munmap(buffer->bytes, buffer->len_bytes);
	*buffer = (struct buffer){0};
}
