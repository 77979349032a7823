import { durable } from '../durable.ts'

/** Without subnets it is on no host, and its record is all that there is of it. */
export const deleteVpc = durable(() => Promise.resolve('deleted' as const), { final: true })
