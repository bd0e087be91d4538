#include <quire/http.h>
