/* A stand-in for libnvidia-ml.so.1 that plays a scenario file, for tests of servegate's telemetry.
 *
 * It implements the calls that servegate makes, with the argument layouts of nvml.h, and nothing else. FAKE_NVML_SCENARIO
 * names the scenario (see scenarios/README.md). Time is virtual (`clock manual`, moved by fake_nvml_set_ms) or real
 * (milliseconds since nvmlInit). Every call first looks for an `error` line, then whether its device is lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_DEVICES 16
#define MAX_POINTS 64
#define MAX_ERRORS 64
#define MAX_PROCESSES 16
#define FIELD_POWER_INSTANT 186
#define METRIC_SM_UTIL 2

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15 };
enum { POWER, UTILIZATION, SM_UTIL, MEMORY, CLOCK, TEMPERATURE, REASONS, ECC, IS_LOST, PROCESSES, KEYS };
static const char *key_names[KEYS] = {"power",       "utilization", "sm_util", "memory", "clock",
                                      "temperature", "reasons",     "ecc",     "lost",   "processes"};

typedef struct { long long at_ms; double value; char list[128]; } Point;
typedef struct { Point points[MAX_POINTS]; int count; } Curve;
typedef struct { char call[80]; int code; long long from_ms, to_ms; } Failing;
typedef struct Device {
  char uuid[96], name[96];
  Curve curves[KEYS];
  Failing errors[MAX_ERRORS];
  int error_count, gpm, mig, max_instances, slices, instance_id, ecc_mode;
  unsigned long long memory_total, energy_start, power_limit, refresh_ms;
  double energy_scale;
  long long reset_ms;
  struct Device *board;
} Device;

static Device devices[MAX_DEVICES];
static int device_count, started, init_hangs, init_code, manual_clock, cuda_version = 12090;
static char driver_version[80] = "575.51.03";
static Failing global_errors[MAX_ERRORS];
static int global_error_count;
static long long manual_ms;
static struct timespec real_start;

void fake_nvml_set_ms(long long ms) { manual_ms = ms; }

static long long now_ms(void) {
  struct timespec now;
  if (manual_clock) return manual_ms;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - real_start.tv_sec) * 1000LL + (now.tv_nsec - real_start.tv_nsec) / 1000000;
}

/* ------------------------------------------------------------ the scenario */

static void add_error(Failing *list, int *count, const char *rest) {
  Failing *one = &list[*count];
  one->from_ms = 0;
  one->to_ms = 1LL << 60;
  if (*count < MAX_ERRORS && sscanf(rest, "%79s %d %lld %lld", one->call, &one->code, &one->from_ms, &one->to_ms) >= 2)
    (*count)++;
}

static void add_point(Device *device, const char *rest) {
  long long at;
  char key[32], value[128];
  if (sscanf(rest, "%lld %31s %127s", &at, key, value) != 3) return;
  for (int index = 0; index < KEYS; index++) {
    Curve *curve = &device->curves[index];
    if (strcmp(key, key_names[index]) != 0 || curve->count >= MAX_POINTS) continue;
    Point *point = &curve->points[curve->count++];
    point->at_ms = at;
    point->value = atof(value);
    strcpy(point->list, value);
  }
}

static Device *add_device(const char *rest, Device *board) {
  Device *device = &devices[device_count++];
  memset(device, 0, sizeof *device);
  strcpy(device->name, "Fake GPU");
  sscanf(rest, "%95s %95[^\n]", device->uuid, device->name);
  device->memory_total = 80ULL << 30;
  device->power_limit = 700000;
  device->refresh_ms = 1;
  device->energy_scale = 1.0;
  device->reset_ms = -1;
  device->ecc_mode = 1;
  device->board = board;
  return device;
}

static void read_scenario(void) {
  const char *path = getenv("FAKE_NVML_SCENARIO");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[512], word[64];
  Device *current = NULL, *gpu = NULL;
  int instances = 0, used;
  if (!file) { init_code = 999; return; }
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "%63s %n", word, &used) < 1 || word[0] == '#') continue;
    const char *rest = line + used;
    if (!strcmp(word, "driver")) sscanf(rest, "%79s", driver_version);
    else if (!strcmp(word, "cuda")) cuda_version = atoi(rest);
    else if (!strcmp(word, "init")) init_code = atoi(rest);
    else if (!strcmp(word, "init_hangs")) init_hangs = atoi(rest);
    else if (!strcmp(word, "clock")) manual_clock = !strncmp(rest, "manual", 6);
    else if (!strcmp(word, "gpu")) { gpu = current = add_device(rest, NULL); instances = 0; }
    else if (!strcmp(word, "mig") && gpu) {
      current = add_device(rest, gpu);
      current->instance_id = ++instances;
      gpu->mig = 1;
    }
    else if (!strcmp(word, "error") && current) add_error(current->errors, &current->error_count, rest);
    else if (!strcmp(word, "error")) add_error(global_errors, &global_error_count, rest);
    else if (!current) continue;
    else if (!strcmp(word, "at")) add_point(current, rest);
    else if (!strcmp(word, "gpm")) current->gpm = atoi(rest);
    else if (!strcmp(word, "slices")) current->slices = atoi(rest);
    else if (!strcmp(word, "max_instances")) current->max_instances = atoi(rest);
    else if (!strcmp(word, "memory_total")) current->memory_total = strtoull(rest, NULL, 10);
    else if (!strcmp(word, "power_limit")) current->power_limit = strtoull(rest, NULL, 10);
    else if (!strcmp(word, "energy_start")) current->energy_start = strtoull(rest, NULL, 10);
    else if (!strcmp(word, "energy_refresh_ms")) current->refresh_ms = strtoull(rest, NULL, 10);
    else if (!strcmp(word, "energy_scale")) current->energy_scale = atof(rest);
    else if (!strcmp(word, "energy_reset_ms")) current->reset_ms = atoll(rest);
    else if (!strcmp(word, "ecc_mode")) current->ecc_mode = atoi(rest);
  }
  fclose(file);
}

/* ------------------------------------------------------------ values at a moment */

static const Point *at(const Curve *curve, long long ms) {
  const Point *found = NULL;
  for (int index = 0; index < curve->count; index++)
    if (curve->points[index].at_ms <= ms) found = &curve->points[index];
  return found;
}

static double value(const Device *device, int key) {
  const Point *point = at(&device->curves[key], now_ms());
  return point ? point->value : 0.0;
}

static double integral(const Curve *curve, long long from, long long to) { /* value x seconds */
  double sum = 0.0;
  for (int index = 0; index < curve->count; index++) {
    long long start = curve->points[index].at_ms;
    long long end = index + 1 < curve->count ? curve->points[index + 1].at_ms : to;
    if (start < from) start = from;
    if (end > to) end = to;
    if (end > start) sum += curve->points[index].value * (double)(end - start) / 1000.0;
  }
  return sum;
}

static int failing(const Failing *list, int count, const char *call) {
  long long ms = now_ms();
  for (int index = 0; index < count; index++)
    if (!strcmp(list[index].call, call) && list[index].from_ms <= ms && ms < list[index].to_ms) return list[index].code;
  return SUCCESS;
}

static int ready(const Device *device, const char *call) {
  int code;
  if (!started) return UNINITIALIZED;
  if ((code = failing(global_errors, global_error_count, call)) != SUCCESS) return code;
  if (!device) return SUCCESS;
  if (value(device, IS_LOST) > 0.0 || (device->board && value(device->board, IS_LOST) > 0.0)) return LOST;
  return failing(device->errors, device->error_count, call);
}
#define READY(device) do { int code_ = ready(device, __func__); if (code_ != SUCCESS) return code_; } while (0)

/* ------------------------------------------------------------ the library */

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  device_count = global_error_count = init_code = manual_clock = 0;
  clock_gettime(CLOCK_MONOTONIC, &real_start);
  read_scenario();
  while (init_hangs) pause();
  if (init_code != SUCCESS) return init_code;
  started = 1;
  return SUCCESS;
}
int nvmlShutdown(void) { started = 0; return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the fake"; }

int nvmlSystemGetDriverVersion(char *text, unsigned length) { READY(NULL); snprintf(text, length, "%s", driver_version); return SUCCESS; }
int nvmlSystemGetCudaDriverVersion(int *version) { READY(NULL); *version = cuda_version; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  READY(NULL);
  *count = 0;
  for (int index = 0; index < device_count; index++) *count += devices[index].board == NULL;
  return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned wanted, Device **device) {
  READY(NULL);
  for (int index = 0; index < device_count; index++)
    if (!devices[index].board && wanted-- == 0) { *device = &devices[index]; return ready(*device, __func__); }
  return INVALID;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
  READY(NULL);
  for (int index = 0; index < device_count; index++)
    if (!strcmp(devices[index].uuid, uuid)) { *device = &devices[index]; return ready(*device, __func__); }
  return NOT_FOUND;
}
int nvmlDeviceGetUUID(Device *device, char *text, unsigned length) { READY(device); snprintf(text, length, "%s", device->uuid); return SUCCESS; }
int nvmlDeviceGetName(Device *device, char *text, unsigned length) { READY(device); snprintf(text, length, "%s", device->name); return SUCCESS; }

int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *millijoules) {
  READY(device);
  if (device->board) return NOT_SUPPORTED;
  long long until = now_ms() / (long long)device->refresh_ms * (long long)device->refresh_ms;
  int reset = device->reset_ms >= 0 && until >= device->reset_ms;
  double used = integral(&device->curves[POWER], reset ? device->reset_ms : 0, until) * device->energy_scale;
  *millijoules = (reset ? 0 : device->energy_start) + (unsigned long long)used;
  return SUCCESS;
}
int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
  READY(device);
  if (device->board) return NOT_SUPPORTED;
  *milliwatts = (unsigned)value(device, POWER);
  return SUCCESS;
}
typedef struct { unsigned fieldId, scopeId; long long timestamp, latencyUsec; int valueType, nvmlReturn; union { double d; unsigned ui; unsigned long long ull; } value; } FieldValue;
int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
  READY(device);
  for (int index = 0; index < count; index++) {
    int known = values[index].fieldId == FIELD_POWER_INSTANT && !device->board;
    int code = failing(device->errors, device->error_count, "field186");
    values[index].nvmlReturn = known ? code : NOT_SUPPORTED;
    values[index].valueType = 1;
    values[index].value.ui = (unsigned)value(device, POWER);
  }
  return SUCCESS;
}
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *limit) { READY(device); *limit = (unsigned)device->power_limit; return device->board ? NOT_SUPPORTED : SUCCESS; }
int nvmlDeviceGetUtilizationRates(Device *device, unsigned *rates) {
  READY(device);
  if (device->mig || device->board) return NOT_SUPPORTED;
  rates[0] = (unsigned)value(device, UTILIZATION);
  rates[1] = 0;
  return SUCCESS;
}
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
#define RESERVED (600ULL << 20)
int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
  READY(device);
  memory->total = device->memory_total;
  memory->used = (unsigned long long)value(device, MEMORY) + RESERVED;
  memory->free = memory->total - memory->used;
  return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *memory) {
  READY(device);
  if (memory->version != (sizeof(MemoryV2) | 2u << 24)) return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
  memory->total = device->memory_total;
  memory->reserved = RESERVED;
  memory->used = (unsigned long long)value(device, MEMORY);
  memory->free = memory->total - memory->used - RESERVED;
  return SUCCESS;
}
int nvmlDeviceGetClockInfo(Device *device, int type, unsigned *mhz) { READY(device); *mhz = (unsigned)value(device, CLOCK); return type == 1 ? SUCCESS : INVALID; }
int nvmlDeviceGetMaxClockInfo(Device *device, int type, unsigned *mhz) { READY(device); *mhz = 1980; return type == 1 ? SUCCESS : INVALID; }
int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *celsius) { READY(device); *celsius = (unsigned)value(device, TEMPERATURE); return sensor == 0 ? SUCCESS : INVALID; }
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *reasons) { READY(device); *reasons = (unsigned long long)value(device, REASONS); return SUCCESS; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *reasons) { READY(device); *reasons = (unsigned long long)value(device, REASONS); return SUCCESS; }
int nvmlDeviceGetEccMode(Device *device, unsigned *now, unsigned *pending) { READY(device); *now = *pending = (unsigned)device->ecc_mode; return SUCCESS; }
int nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter, unsigned long long *count) {
  READY(device);
  if (!device->ecc_mode) return NOT_SUPPORTED;
  *count = (unsigned long long)value(device, ECC);
  return type == 1 && counter == 0 ? SUCCESS : INVALID;
}

/* processes: a call with room for none says how many there are */
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } ProcessInfo;
static int processes(Device *device, unsigned *count, ProcessInfo *list) {
  const Point *point = at(&device->curves[PROCESSES], now_ms());
  char text[128] = "";
  unsigned found = 0, pids[MAX_PROCESSES];
  if (point) strcpy(text, point->list);
  for (char *word = strtok(text, ","); word && found < MAX_PROCESSES; word = strtok(NULL, ","))
    if (strcmp(word, "none") != 0) pids[found++] = (unsigned)atoi(word);
  if (found > *count || (found && !list)) { *count = found; return INSUFFICIENT_SIZE; }
  *count = found;
  for (unsigned index = 0; index < found; index++) list[index] = (ProcessInfo){pids[index], 1ULL << 30, ~0u, ~0u};
  return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v2(Device *device, unsigned *count, ProcessInfo *list) { READY(device); return processes(device, count, list); }
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, ProcessInfo *list) { READY(device); return processes(device, count, list); }

/* MIG */
typedef struct { unsigned sm, copy, decoder, encoder, jpeg, ofa, gpu_slices, compute_slices; unsigned long long memory_mb; } Attributes;
int nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *pending) { READY(device); if (device->board) return NOT_SUPPORTED; *now = *pending = (unsigned)device->mig; return SUCCESS; }
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) { READY(device); *count = (unsigned)device->max_instances; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned wanted, Device **instance) {
  READY(device);
  for (int index = 0; index < device_count; index++)
    if (devices[index].board == device && wanted-- == 0) { *instance = &devices[index]; return SUCCESS; }
  return NOT_FOUND;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *instance, Device **device) { READY(instance); *device = instance->board; return SUCCESS; }
int nvmlDeviceGetGpuInstanceId(Device *instance, unsigned *id) { READY(instance); *id = (unsigned)instance->instance_id; return SUCCESS; }
int nvmlDeviceGetAttributes_v2(Device *instance, Attributes *attributes) { READY(instance); memset(attributes, 0, sizeof *attributes); attributes->gpu_slices = (unsigned)instance->slices; return SUCCESS; }

/* GPM: a sample remembers its device and time; a metric is the mean between two samples */
typedef struct { Device *device; long long ms; } GpmSample;
typedef struct { unsigned id; int code; double value; const char *names[3]; } GpmMetric;
typedef struct { unsigned version, count; GpmSample *first, *second; GpmMetric metrics[]; } GpmMetricsGet;
typedef struct { unsigned version, supported; } GpmSupport;
int nvmlGpmQueryDeviceSupport(Device *device, GpmSupport *support) { READY(device); support->supported = (unsigned)device->gpm; return SUCCESS; }
int nvmlGpmSampleAlloc(GpmSample **sample) { READY(NULL); *sample = calloc(1, sizeof **sample); return SUCCESS; }
int nvmlGpmSampleFree(GpmSample *sample) { free(sample); return SUCCESS; }
int nvmlGpmSampleGet(Device *device, GpmSample *sample) { READY(device); *sample = (GpmSample){device, now_ms()}; return SUCCESS; }
int nvmlGpmMigSampleGet(Device *board, unsigned instance, GpmSample *sample) {
  READY(board);
  for (int index = 0; index < device_count; index++)
    if (devices[index].board == board && devices[index].instance_id == (int)instance) {
      *sample = (GpmSample){&devices[index], now_ms()};
      return SUCCESS;
    }
  return INVALID;
}
int nvmlGpmMetricsGet(GpmMetricsGet *request) {
  READY(NULL);
  if (request->version != 1 || request->count != 1 || request->metrics[0].id != METRIC_SM_UTIL) return INVALID;
  long long span = request->second->ms - request->first->ms;
  request->metrics[0].code = span < 100 ? INVALID : SUCCESS;
  if (span >= 100)
    request->metrics[0].value =
        integral(&request->first->device->curves[SM_UTIL], request->first->ms, request->second->ms) * 1000.0 / (double)span;
  return SUCCESS;
}
