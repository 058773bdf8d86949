/*
 * A small libnvidia-ml.so.1 that says what a text file tells it to.
 *
 * The file is named by the variable FAKE_NVML and is read anew at every call, so a test changes
 * the machine by rewriting it. One statement a line, `#` starts a comment:
 *
 *   driver 570.86.15            version of the driver
 *   link-peer switch            every `link` below leads to an NVSwitch
 *   gpu UUID                    starts a device; what follows up to the next `gpu` belongs to it
 *   name TEXT                   as the driver prints it
 *   bus 00000000:07:00.0        PCI bus id
 *   memory TOTAL USED           bytes; 18446744073709551615 is the driver's "not available"
 *   utilisation PERCENT
 *   process PID BYTES [PERCENT] a compute process; `graphics PID BYTES` one of the other list
 *   link BUS                    one active NVLink to the device with that bus id
 *   mig on                      the device is in MIG mode
 *   slice UUID PROFILE GI CI    starts a MIG slice of the device (name, memory, process follow)
 *
 *   error FUNCTION CODE         before the first `gpu`: whoever calls it; within one: for it only
 *   hang FUNCTION SECONDS       the call sleeps first
 *   crash FUNCTION              the call ends the process by SIGSEGV
 *
 * FUNCTION is the name without the prefix `nvml` and without a version suffix.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUCCESS 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define NOT_AVAILABLE UINT64_MAX

enum { DEVICES = 64, PROCESSES = 32, LINKS = 18, FAULTS = 16, TEXT = 96 };

typedef struct { char function[64]; char kind; int value; } fault_t;
typedef struct { unsigned pid; uint64_t memory; int utilisation; int graphics; } process_t;
typedef struct {
    char uuid[TEXT], name[TEXT], bus[32], profile[32];
    uint64_t total, used;
    int utilisation, mig, parent, gi, ci;
    int links, processes, faults;
    char link[LINKS][32];
    process_t process[PROCESSES];
    fault_t fault[FAULTS];
} device_t;

static struct {
    char driver[64];
    int peer_is_switch, devices, faults;
    fault_t fault[FAULTS];
    device_t device[DEVICES];
} world;

static void add_fault(device_t *device, char kind, const char *rest)
{
    int *count = device ? &device->faults : &world.faults;
    fault_t *list = device ? device->fault : world.fault;
    if (*count >= FAULTS) abort();
    fault_t *fault = &list[(*count)++];
    fault->kind = kind;
    fault->value = 0;
    sscanf(rest, "%63s %d", fault->function, &fault->value);
}

static void add_process(device_t *device, const char *rest, int graphics)
{
    if (device->processes >= PROCESSES) abort();
    process_t *process = &device->process[device->processes++];
    unsigned long long memory = 0;
    process->utilisation = -1;
    process->graphics = graphics;
    sscanf(rest, "%u %llu %d", &process->pid, &memory, &process->utilisation);
    process->memory = memory;
}

static device_t *add_device(int parent)
{
    if (world.devices >= DEVICES) abort();
    device_t *device = &world.device[world.devices++];
    memset(device, 0, sizeof *device);
    device->parent = parent;
    strcpy(device->name, "NVIDIA Test");
    return device;
}

static void statement(device_t **current, int *whole, const char *word, const char *rest)
{
    device_t *device = *current;
    if (!strcmp(word, "driver")) sscanf(rest, "%63s", world.driver);
    else if (!strcmp(word, "link-peer")) world.peer_is_switch = !strncmp(rest, "switch", 6);
    else if (!strcmp(word, "error")) add_fault(device, 'e', rest);
    else if (!strcmp(word, "hang")) add_fault(device, 'h', rest);
    else if (!strcmp(word, "crash")) add_fault(device, 'c', rest);
    else if (!strcmp(word, "gpu")) {
        *whole = world.devices;
        *current = add_device(-1);
        sscanf(rest, "%95s", (*current)->uuid);
    } else if (!device) {
        fprintf(stderr, "FAKE_NVML: '%s' needs a gpu before it\n", word);
        abort();
    } else if (!strcmp(word, "slice")) {
        *current = add_device(*whole);
        sscanf(rest, "%95s %31s %d %d", (*current)->uuid, (*current)->profile, &(*current)->gi,
               &(*current)->ci);
    } else if (!strcmp(word, "name")) snprintf(device->name, TEXT, "%s", rest);
    else if (!strcmp(word, "bus")) sscanf(rest, "%31s", device->bus);
    else if (!strcmp(word, "memory")) {
        unsigned long long total = 0, used = 0;
        sscanf(rest, "%llu %llu", &total, &used);
        device->total = total;
        device->used = used;
    } else if (!strcmp(word, "utilisation")) device->utilisation = atoi(rest);
    else if (!strcmp(word, "process")) add_process(device, rest, 0);
    else if (!strcmp(word, "graphics")) add_process(device, rest, 1);
    else if (!strcmp(word, "mig")) device->mig = 1;
    else if (!strcmp(word, "link")) {
        if (device->links >= LINKS) abort();
        sscanf(rest, "%31s", device->link[device->links++]);
    } else {
        fprintf(stderr, "FAKE_NVML: unknown statement '%s'\n", word);
        abort();
    }
}

static void read_world(void)
{
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    device_t *current = NULL;
    int whole = -1;
    memset(&world, 0, sizeof world);
    strcpy(world.driver, "570.86.15");
    if (!file) abort();
    while (fgets(line, sizeof line, file)) {
        char word[32] = "";
        int used = 0;
        line[strcspn(line, "#\n")] = 0;
        if (sscanf(line, "%31s %n", word, &used) < 1) continue;
        statement(&current, &whole, word, line + used);
    }
    fclose(file);
}

static int strike(const fault_t *list, int count, const char *function)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(list[i].function, function)) continue;
        if (list[i].kind == 'h') sleep((unsigned)list[i].value);
        else if (list[i].kind == 'c') raise(SIGSEGV);
        else return list[i].value;
    }
    return SUCCESS;
}

/* Reads the file and lets the declared faults of a function strike. A handle is 1 + position. */
static int enter(const char *function, void *handle, device_t **device)
{
    read_world();
    int code = strike(world.fault, world.faults, function);
    if (code || !device) return code;
    intptr_t position = (intptr_t)handle - 1;
    if (position < 0 || position >= world.devices) return INVALID_ARGUMENT;
    *device = &world.device[position];
    return strike((*device)->fault, (*device)->faults, function);
}

#define ENTER(function, handle)                                                                    \
    device_t *device;                                                                              \
    int code = enter(function, handle, &device);                                                   \
    if (code) return code

static int text(char *out, unsigned length, const char *value)
{
    if (strlen(value) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

/* Position of the nth whole device (parent -1) or the nth slice of one; -1 when there is none. */
static int nth(int parent, unsigned n)
{
    for (int i = 0; i < world.devices; i++)
        if (world.device[i].parent == parent && n-- == 0) return i;
    return -1;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return enter("Init", NULL, NULL); }
int nvmlInit_v2(void) { return enter("Init", NULL, NULL); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code)
{
    static char buffer[32];
    snprintf(buffer, sizeof buffer, "Error %d", code);
    return buffer;
}

int nvmlSystemGetDriverVersion(char *out, unsigned length)
{
    int code = enter("SystemGetDriverVersion", NULL, NULL);
    return code ? code : text(out, length, world.driver);
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    int code = enter("DeviceGetCount", NULL, NULL);
    for (*out = 0; !code && nth(-1, *out) >= 0; ++*out) {}
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out)
{
    int code = enter("DeviceGetHandleByIndex", NULL, NULL);
    int position = nth(-1, index);
    if (code) return code;
    if (position < 0) return INVALID_ARGUMENT;
    device_t *device = &world.device[position];
    *out = (void *)(intptr_t)(position + 1);
    return strike(device->fault, device->faults, "DeviceGetHandleByIndex");
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **out)
{
    int code = enter("DeviceGetHandleByUUID", NULL, NULL);
    if (code) return code;
    for (int i = 0; i < world.devices; i++)
        if (!strcmp(world.device[i].uuid, uuid)) {
            *out = (void *)(intptr_t)(i + 1);
            return strike(world.device[i].fault, world.device[i].faults, "DeviceGetHandleByUUID");
        }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(void *handle, char *out, unsigned length)
{
    ENTER("DeviceGetUUID", handle);
    return text(out, length, device->uuid);
}

int nvmlDeviceGetName(void *handle, char *out, unsigned length)
{
    char full[2 * TEXT];
    ENTER("DeviceGetName", handle);
    if (device->parent < 0) return text(out, length, device->name);
    snprintf(full, sizeof full, "%s MIG %s", world.device[device->parent].name, device->profile);
    return text(out, length, full);
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
} pci_t;

static void fill_pci(pci_t *out, const char *bus)
{
    memset(out, 0, sizeof *out);
    snprintf(out->text, sizeof out->text, "%s", bus);
    sscanf(bus, "%x:%x:%x", &out->domain, &out->bus, &out->device);
}

int nvmlDeviceGetPciInfo_v3(void *handle, pci_t *out)
{
    ENTER("DeviceGetPciInfo", handle);
    fill_pci(out, device->bus);
    return SUCCESS;
}

typedef struct { uint64_t total, free, used; } memory_t;
typedef struct { unsigned version; uint64_t total, reserved, free, used; } memory_v2_t;

int nvmlDeviceGetMemoryInfo(void *handle, memory_t *out)
{
    ENTER("DeviceGetMemoryInfo", handle);
    *out = (memory_t){device->total, device->total - device->used, device->used};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2_t *out)
{
    ENTER("DeviceGetMemoryInfo", handle);
    out->total = device->total;
    out->reserved = 0;
    out->used = device->used;
    out->free = device->total - device->used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, unsigned out[2])
{
    ENTER("DeviceGetUtilizationRates", handle);
    if (device->mig || device->parent >= 0) return NOT_SUPPORTED;
    out[0] = (unsigned)device->utilisation;
    out[1] = 0;
    return SUCCESS;
}

typedef struct { unsigned pid; uint64_t memory; unsigned gi, ci; } process_info_t;

static int list(const device_t *device, unsigned *count, process_info_t *out, int graphics)
{
    unsigned found = 0, room = *count;
    for (int i = 0; i < device->processes; i++) {
        if (device->process[i].graphics != graphics) continue;
        if (out && found < room)
            out[found] = (process_info_t){device->process[i].pid, device->process[i].memory,
                                          (unsigned)device->gi, (unsigned)device->ci};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_info_t *out)
{
    ENTER("DeviceGetComputeRunningProcesses", handle);
    return list(device, count, out, 0);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, process_info_t *out)
{
    ENTER("DeviceGetGraphicsRunningProcesses", handle);
    return list(device, count, out, 1);
}

typedef struct { unsigned pid; uint64_t at; unsigned sm, memory, enc, dec; } sample_t;

/* Each process with a percentage has one sample, always newer than what the caller has seen. */
int nvmlDeviceGetProcessUtilization(void *handle, sample_t *out, unsigned *count, uint64_t seen)
{
    unsigned found = 0, room = *count;
    ENTER("DeviceGetProcessUtilization", handle);
    if (device->mig || device->parent >= 0) return NOT_SUPPORTED;
    for (int i = 0; i < device->processes; i++) {
        if (device->process[i].utilisation < 0) continue;
        if (out && found < room)
            out[found] = (sample_t){device->process[i].pid, seen + 1000,
                                    (unsigned)device->process[i].utilisation, 0, 0, 0};
        found++;
    }
    *count = found;
    if (!found) return NOT_FOUND;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending)
{
    ENTER("DeviceGetMigMode", handle);
    *current = *pending = (unsigned)device->mig;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *out)
{
    ENTER("DeviceGetMaxMigDeviceCount", handle);
    *out = device->mig ? 7 : 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **out)
{
    ENTER("DeviceGetMigDeviceHandleByIndex", handle);
    int position = nth((int)(device - world.device), index);
    if (position < 0) return NOT_FOUND;
    *out = (void *)(intptr_t)(position + 1);
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *out)
{
    ENTER("DeviceGetGpuInstanceId", handle);
    *out = (unsigned)device->gi;
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(void *handle, unsigned *out)
{
    ENTER("DeviceGetComputeInstanceId", handle);
    *out = (unsigned)device->ci;
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **out)
{
    ENTER("DeviceGetDeviceHandleFromMigDeviceHandle", handle);
    if (device->parent < 0) return INVALID_ARGUMENT;
    *out = (void *)(intptr_t)(device->parent + 1);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *out)
{
    ENTER("DeviceGetNvLinkState", handle);
    if (link >= LINKS) return INVALID_ARGUMENT;
    if (!device->links) return NOT_SUPPORTED;
    *out = (int)link < device->links;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, pci_t *out)
{
    ENTER("DeviceGetNvLinkRemotePciInfo", handle);
    if ((int)link >= device->links) return NOT_SUPPORTED;
    fill_pci(out, device->link[link]);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, unsigned *out)
{
    ENTER("DeviceGetNvLinkRemoteDeviceType", handle);
    if ((int)link >= device->links) return NOT_SUPPORTED;
    *out = world.peer_is_switch ? 2 : 0;
    return SUCCESS;
}
