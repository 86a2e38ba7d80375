/* Stand-in for libcudnn: it knows its version. */
#include "machine.h"

/* 90300 is 9.3.0, and before version 9 8907 was 8.9.7. */
static int part(int which) {
    int version = (int)machine.cudnn, major = version >= 90000 ? 10000 : 1000;
    return which == 0 ? version / major : which == 1 ? version % major / 100 : version % 100;
}

EXPORT size_t cudnnGetVersion(void) {
    enter(__func__);
    return (size_t)machine.cudnn;
}

/* `which`: 0 major, 1 minor, 2 patch. */
EXPORT int cudnnGetProperty(int which, int *value) {
    *value = part(which);
    return enter(__func__);
}
