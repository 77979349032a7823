import { MailRecord } from '../../models/identity/mails.ts'
import { unsealSecret } from '../../models/secrets.ts'

/** The mails to this address so far, oldest first, as a worker would send them. */
export async function mailsTo(to: string): Promise<{ subject: string; text: string }[]> {
  const records = await MailRecord.find({ to }).sort({ _id: 1 }).lean()
  return records.map(({ _id, text_sealed }) => unsealSecret(text_sealed, _id))
}

/** The one-time token of the last mail to this address. */
export async function mailedToken(to: string): Promise<string> {
  const text = (await mailsTo(to)).at(-1)?.text ?? ''
  const [token] = /kl[ip]_[\w-]{43}/.exec(text) ?? []
  if (!token) throw new Error(`no token in the last mail to ${to}: ${text}`)
  return token
}
