import { z } from 'zod'
import { Arguments } from './instances.ts'

// The health check of an instance: a command that runs in it.

export const HealthCheck = z.strictObject({
  command: Arguments.min(1),
  interval_sec: z.int().min(1).max(3600).default(10),
  timeout_sec: z.int().min(1).max(600).default(5),
  retries: z.int().min(1).max(100).default(3),
  start_period_sec: z.int().min(0).max(3600).default(0),
})

/** A container's check is run by its host: each run costs the host more than the container. */
export const ContainerHealthCheck = HealthCheck.extend({
  interval_sec: z.int().min(5).max(3600).default(10),
})

export const Health = z.enum(['none', 'starting', 'healthy', 'unhealthy'])
