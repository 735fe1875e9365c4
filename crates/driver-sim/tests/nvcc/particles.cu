// A struct passed by value and structs in memory.
struct World {
    float3 gravity;
    float drag;
    double step;
    short bounces[3];
    unsigned char walls;
};

struct Particle {
    float3 place, speed;
    int bounced;
};

extern "C" __global__ void particles(World world, Particle *all, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    Particle p = all[i];
    float dt = (float)world.step;
    p.speed.x += (world.gravity.x - world.drag * p.speed.x) * dt;
    p.speed.y += (world.gravity.y - world.drag * p.speed.y) * dt;
    p.speed.z += (world.gravity.z - world.drag * p.speed.z) * dt;
    p.place.x += p.speed.x * dt;
    p.place.y += p.speed.y * dt;
    p.place.z += p.speed.z * dt;
    if ((world.walls & 2) && p.place.y < 0.0f) {
        p.place.y = -p.place.y;
        p.speed.y = -p.speed.y;
        p.bounced += world.bounces[i % 3];
    }
    all[i] = p;
}
