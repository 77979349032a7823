import { MailRecord } from '../../models/identity/mails.ts'
import { eventually } from './eventually.ts'
import { platform } from './platform.ts'

/** The mails to this address, oldest first: without an SMTP server they are in the worker's log. */
export async function mailsTo(to: string): Promise<{ subject: string; text: string }[]> {
  await eventually(async () => !(await MailRecord.exists({ to, state: 'waiting' })))
  const sent = await MailRecord.countDocuments({ to, state: 'sent' })
  return eventually(() => {
    const mails = logged(to)
    return mails.length >= sent ? mails : null // the log is written a moment after the mail is marked as sent
  })
}

const logged = (to: string): { subject: string; text: string }[] =>
  platform
    .logs('worker')
    .split('\n')
    .filter((line) => line.includes(to))
    .map((line) => JSON.parse(line) as { to?: string; subject: string; text: string })
    .filter((entry) => entry.to === to)

/** The one-time token of the latest mail to this address. */
export async function mailedToken(to: string): Promise<string> {
  const text = (await mailsTo(to)).at(-1)?.text ?? ''
  const [token] = /kl[ip]_[\w-]{43}/.exec(text) ?? []
  if (!token) throw new Error(`no token in the last mail to ${to}: ${text}`)
  return token
}
