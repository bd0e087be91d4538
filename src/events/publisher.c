#include <quire/events.h>
