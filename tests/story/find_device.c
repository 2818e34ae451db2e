/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prints "DEVICE ADDRESS" of the first RDMA device of this machine that could serve: it has
 * memory windows of type 2B, a port that is up, and a network interface with an IPv4 address.
 *
 * usage: find_device [DEVICE]
 * exit status: 0 found, 1 none (standard error says why for each)
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 1

/* RoCE names its interface with the first address of its table. */
static bool read_gid_interface(const char *device, char interface[IF_NAMESIZE])
{
	char path[256];
	bool found;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/gid_attrs/ndevs/0",
		       device, PORT);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	found = fgets(interface, IF_NAMESIZE, file) != NULL;
	(void)fclose(file);
	interface[strcspn(interface, "\n")] = '\0';
	return found;
}

/* InfiniBand's interface is beside the device on the bus. */
static bool read_bus_interface(const char *device, char interface[IF_NAMESIZE])
{
	const struct dirent *entry;
	char path[256];
	bool found = false;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/net", device);
	dir = opendir(path);
	if (dir == NULL)
		return false;
	while (!found && (entry = readdir(dir)) != NULL) {
		found = entry->d_name[0] != '.' && strlen(entry->d_name) < IF_NAMESIZE;
		if (found)
			(void)strcpy(interface, entry->d_name);
	}
	(void)closedir(dir);
	return found;
}

static bool find_address(const char *interface, char address[INET_ADDRSTRLEN])
{
	struct ifaddrs *list;
	struct sockaddr_in in;
	bool found = false;

	if (getifaddrs(&list) < 0)
		return false;
	for (const struct ifaddrs *at = list; at != NULL && !found; at = at->ifa_next) {
		if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET ||
		    strcmp(at->ifa_name, interface) != 0)
			continue;
		memcpy(&in, at->ifa_addr, sizeof(in));
		found = inet_ntop(AF_INET, &in.sin_addr, address, INET_ADDRSTRLEN) != NULL;
	}
	freeifaddrs(list);
	return found;
}

/* Return: NULL, or why the device is of no use. */
static const char *check(struct ibv_context *context, char address[INET_ADDRSTRLEN])
{
	const char *device = ibv_get_device_name(context->device);
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	char interface[IF_NAMESIZE];

	if (ibv_query_device(context, &attr) != 0)
		return "cannot be queried";
	if ((attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) == 0)
		return "has no memory windows of type 2B";
	if (ibv_query_port(context, PORT, &port) != 0 || port.state != IBV_PORT_ACTIVE)
		return "its port is not active";
	if (!read_gid_interface(device, interface) && !read_bus_interface(device, interface))
		return "has no network interface";
	if (!find_address(interface, address))
		return "its network interface has no IPv4 address";
	return NULL;
}

int main(int argc, char **argv)
{
	struct ibv_context **contexts = rdma_get_devices(NULL);
	char address[INET_ADDRSTRLEN];
	const char *device, *why;

	for (int i = 0; contexts != NULL && contexts[i] != NULL; i++) {
		device = ibv_get_device_name(contexts[i]->device);
		if (argc > 1 && strcmp(argv[1], device) != 0)
			continue;
		why = check(contexts[i], address);
		if (why == NULL) {
			printf("%s %s\n", device, address);
			rdma_free_devices(contexts);
			return EXIT_SUCCESS;
		}
		fprintf(stderr, "find_device: %s %s\n", device, why);
	}
	fprintf(stderr, "find_device: no usable RDMA device%s%s\n", argc > 1 ? " " : "",
		argc > 1 ? argv[1] : "");
	if (contexts != NULL)
		rdma_free_devices(contexts);
	return EXIT_FAILURE;
}
