import { randomBytes, randomInt } from 'node:crypto'
import { hostLabelOf } from './compose.ts'

// Variables that the platform gives a value, by their names:
//   SERVICE_USER_X       a name of 16 letters and digits
//   SERVICE_PASSWORD_X   32 letters and digits; SERVICE_PASSWORD_64_X has 64
//   SERVICE_BASE64_X     32 random bytes in base64; SERVICE_BASE64_64_X has 64
//   SERVICE_HEX_X        32 random bytes in hexadecimal digits
//   SERVICE_URL_X, SERVICE_FQDN_X   where clients reach the container X: its URL, or its host name with the port
//   SERVICE_URL_X_8080, SERVICE_FQDN_X_8080   the same of its port 8080

const letters = 'abcdefghijklmnopqrstuvwxyz'
const all = `${letters}${letters.toUpperCase()}0123456789`
const pick = (from: string, length: number): string =>
  Array.from({ length }, () => from.charAt(randomInt(from.length))).join('')

const kinds: [RegExp, () => string][] = [
  [/^SERVICE_USER_\w+$/, () => pick(letters, 1) + pick(`${letters}0123456789`, 15)],
  [/^SERVICE_PASSWORD_64_\w+$/, () => pick(all, 64)],
  [/^SERVICE_PASSWORD_\w+$/, () => pick(all, 32)],
  [/^SERVICE_BASE64_64_\w+$/, () => randomBytes(64).toString('base64')],
  [/^SERVICE_BASE64_\w+$/, () => randomBytes(32).toString('base64')],
  [/^SERVICE_HEX_\w+$/, () => randomBytes(32).toString('hex')],
]

/** A new random value for a variable of such a name. Undefined for any other. */
export const generateValue = (name: string): string | undefined =>
  kinds.find(([pattern]) => pattern.test(name))?.[1]()

/** Which URL a variable asks for. */
export interface AskedUrl {
  container: string
  /** Null: its first port. */
  port: number | null
  form: 'url' | 'fqdn'
}

const wordOf = (name: string): string => hostLabelOf(name).replaceAll('-', '_').toUpperCase()

/** Which container's URL a variable asks for, by these names of containers. Undefined: it asks for none. */
export function askedUrl(variable: string, containers: string[]): AskedUrl | undefined {
  const found = /^SERVICE_(URL|FQDN)_(\w+)$/.exec(variable)
  if (!found) return undefined
  const [, kind, word = ''] = found
  const form = kind === 'URL' ? 'url' : 'fqdn'
  const container = containers.find((name) => wordOf(name) === word)
  if (container !== undefined) return { container, port: null, form }
  const [, before, port] = /^(\w+)_(\d+)$/.exec(word) ?? []
  const other = containers.find((name) => wordOf(name) === before)
  return other === undefined ? undefined : { container: other, port: Number(port), form }
}
