import { z } from 'zod'
import { newId } from '../../lib/ids.ts'

/** Values for our fields. The first that a field accepts is its sample. */
const candidates = (): unknown[] => [
  'sample',
  'sample@example.com',
  newId(),
  'busybox',
  'debian-12',
  '2030-01-01T00:00:00.000Z',
  'containers:read',
  'a long enough password',
  '10.0.0.0/24',
  '10.0.0.9',
  'https://example.com/',
  '/sample',
  1,
  16,
  0.5,
  1024,
  true,
  null,
  [],
  {},
  ['sample'],
  ['sample.example.com'],
  ['containers:read'],
  [{ port: 80, protocol: 'http' }],
]

/**
 * A value that the type accepts: for an object its required fields, or one field if it needs any. Throws if none fits.
 */
export function sampleOf(type: z.ZodType): unknown {
  const found = trySample(type)
  if (found === undefined)
    throw new Error(`no sample for ${JSON.stringify(z.toJSONSchema(type, { io: 'input' }))}`)
  return found
}

function trySample(type: z.ZodType): unknown {
  if (type instanceof z.ZodUnion)
    return type.options.map((one) => trySample(one as z.ZodType)).find((value) => value !== undefined)
  if (type instanceof z.ZodLiteral) return [...type.values][0]
  const shape = shapeOf(type)
  if (!shape) return candidates().find((value) => type.safeParse(value).success)
  const required = Object.entries(shape).flatMap(([field, of]) =>
    of.safeParse(undefined).success ? [] : [[field, trySample(of)] as const],
  )
  const least = Object.fromEntries(required)
  if (type.safeParse(least).success) return least
  const one = Object.entries(shape).map(([field, of]) => ({ ...least, [field]: trySample(inner(of)) }))
  return one.find((value) => type.safeParse(value).success)
}

const shapeOf = (type: z.ZodType): Record<string, z.ZodType> | undefined =>
  inner(type) instanceof z.ZodObject
    ? (inner(type) as z.ZodObject<Record<string, z.ZodType>>).shape
    : undefined

/** The type without optional, default and nullable wrappers. */
function inner(type: z.ZodType): z.ZodType {
  if (type instanceof z.ZodOptional || type instanceof z.ZodDefault || type instanceof z.ZodNullable)
    return inner(type.unwrap() as z.ZodType)
  return type
}
